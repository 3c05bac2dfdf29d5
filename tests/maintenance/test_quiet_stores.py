"""A closed store is quiet: nothing that siltstone started by itself runs, or touches it."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import siltstone as st

SMALL = 1 << 20
"""Of memory: the indexes of 512 unmerged rows are the share of it at which a merge is due."""
ROWS = 3_000
PROGRAM = """
import sys
import pyarrow as pa
import siltstone as st
db = st.connect(sys.argv[1], memory_bytes_max=1 << 20, retention="0s", close_upkeep_s=60)
if not db.tables():
    db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
db["t"].upsert(pa.table({"id": range(3000), "v": [7] * 3000}))
db.checkpoint()
if sys.argv[2] == "close":
    db.close()
"""


def processes_of(root: Path) -> list[int]:
    """Return the other processes that name a store in their command lines."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                is_of = os.fsencode(root) in (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it ended meanwhile
                continue
            if is_of:
                found.append(int(folder.name))
    return found


def wait_for(pids: list[int]) -> None:
    for pid in pids:
        try:
            ended = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        select.select([ended], [], [], 60)
        os.close(ended)


def age(root: Path, seconds: float = 7200) -> None:
    """Have the files of the records written some hours ago: a vacuum is due."""
    for file in (root / "manifest").iterdir():
        then = file.stat().st_mtime - seconds
        os.utime(file, (then, then))


def behind(root: Path) -> None:
    """Make a store that is behind with a merge and a vacuum."""
    with st.connect(root, background=False, retention="0s") as db:
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        for value in range(4):
            db["t"].upsert(pa.table({"id": range(ROWS), "v": [value] * ROWS}))
            db.checkpoint()
    age(root)


def close(root: Path, **options: object) -> None:
    """Own a store as a program does that writes some rows, and close it."""
    with st.connect(root, memory_bytes_max=SMALL, retention="0s", **options) as db:
        db["t"].upsert(pa.table({"id": range(ROWS), "v": [9] * ROWS}))
        db.checkpoint()


def files_of(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return all files with their inodes, sizes and times."""
    found = {}
    for path in root.rglob("*"):
        about = path.lstat()
        found[str(path)] = (about.st_ino, about.st_size, about.st_mtime_ns)
    return found


def test_no_process_works_on_a_store_that_was_closed(tmp_path: Path) -> None:
    root = tmp_path / "s"
    behind(root)
    close(root)
    working, seen = processes_of(root), files_of(root)
    wait_for(working)
    assert files_of(root) == seen
    assert working == []


def test_no_process_works_on_the_store_of_a_program_that_ended(tmp_path: Path) -> None:
    root = tmp_path / "s"
    behind(root)
    subprocess.run([sys.executable, "-c", PROGRAM, str(root), "exit"], check=True)
    working, seen = processes_of(root), files_of(root)
    wait_for(working)
    assert files_of(root) == seen
    assert working == []


def test_a_copy_of_a_closed_store_in_two_halves_is_the_store(tmp_path: Path) -> None:
    root, copy = tmp_path / "s", tmp_path / "copy"
    behind(root)
    close(root)
    working = processes_of(root)
    first = ("manifest", "LOCK", "NUMBERS", "WITNESS")
    copy.mkdir()
    for name in first:
        take(root / name, copy / name)
    wait_for(working)  # as long as anything goes on, a slow copy may take
    for path in root.iterdir():
        if path.name not in first:
            take(path, copy / path.name)
    with st.connect(copy, background=False) as db:
        assert set(db["t"].to_arrow()["v"].to_pylist()) == {9}
        assert db.verify(deep=True).is_sound


def take(path: Path, to: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, to)
    elif path.exists():
        shutil.copy2(path, to)


def test_no_module_of_the_working_directory_runs_at_an_end(tmp_path: Path) -> None:
    root, program, here = tmp_path / "s", tmp_path / "bin" / "program.py", tmp_path / "cwd"
    behind(root)
    program.parent.mkdir()
    here.mkdir()
    program.write_text(PROGRAM)
    for name in ("json", "signal", "msgspec", "xxhash", "siltstone"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})")
    command = [sys.executable, program, str(root), "close"]
    done = subprocess.run(command, cwd=here, check=True, capture_output=True, text=True)
    wait_for(processes_of(root))
    assert not (tmp_path / "ran").exists()
    assert (done.stdout, done.stderr) == ("", "")
    with st.connect(root, read_only=True) as db:
        assert db.status().tables[0].unmerged_rows == 0
