"""A read-only process, a backup and a vacuum see all that was acknowledged, whatever MARK says.

Real stores: their owner was killed, or lives and goes on. MARK is as it was, has a flipped bit, is
an old one (normal after a power cut: it is never synced), or is gone.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.admin import backup_store, vacuum_store
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.ownership import recovered_epoch

COMMITS = 20
OWNER = f"""
import os, shutil, sys
import siltstone as st

db = st.connect(sys.argv[1], background=False, segment_bytes=65_536)
db.create_table("t", {{"id": "int64", "v": "int64"}}, primary_key="id")
for n in range(2, {COMMITS} + 1):
    db["t"].upsert([{{"id": n, "v": n}}, {{"id": 0, "v": n}}])
    if n == {COMMITS} // 2:
        shutil.copy(sys.argv[1] + "/wal/MARK", sys.argv[1] + ".old")
if sys.argv[2] == "stays":
    print("ready", flush=True)
    sys.stdin.readline()
    db["t"].upsert({{"id": {COMMITS} + 1, "v": 1}})
    print("done", flush=True)
    sys.stdin.readline()
    db.close()
os._exit(0)
"""
HOW = ["intact", "flipped", "old", "gone"]


def harm(root: Path, how: str) -> None:
    """Do to MARK in place what may become of it."""
    mark = root / "wal" / "MARK"
    content = bytearray(mark.read_bytes())
    if how == "flipped":
        content[-3] ^= 4
    if how == "old":
        content = bytearray(Path(f"{root}.old").read_bytes())
    with mark.open("r+b") as file:
        file.write(content)
    if how == "gone":
        mark.unlink()


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    subprocess.run([sys.executable, "-c", OWNER, str(root), "ends"], check=True)
    return root


@pytest.mark.parametrize("how", HOW)
def test_a_reader_after_a_kill_sees_every_commit(killed: Path, how: str) -> None:
    harm(killed, how)
    with st.connect(killed, read_only=True) as db:
        assert db.seq == COMMITS
        assert db["t"].get(0) == {"id": 0, "v": COMMITS}
        assert db["t"].count() == COMMITS


@pytest.mark.parametrize("how", HOW)
def test_a_backup_after_a_kill_has_every_commit(killed: Path, how: str, tmp_path: Path) -> None:
    harm(killed, how)
    backup_store(killed, tmp_path / "backup")
    st.restore(tmp_path / "backup", tmp_path / "restored")
    with st.connect(tmp_path / "restored", background=False) as db:
        assert (db.seq, db["t"].count()) == (COMMITS, COMMITS)


@pytest.mark.parametrize("how", HOW)
def test_a_reader_that_stays_sees_the_owner_that_comes_and_goes(killed: Path, how: str) -> None:
    harm(killed, how)
    with st.connect(killed, read_only=True) as reader:
        assert reader.seq == COMMITS
        with st.connect(killed, background=False) as db:
            assert reader.seq == COMMITS
            db["t"].upsert({"id": -1, "v": 1})
            assert reader.seq == COMMITS + 1
            db.checkpoint()
            db["t"].upsert({"id": -2, "v": 1})
        assert reader["t"].count() == COMMITS + 2


@pytest.fixture
def living(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    root = tmp_path / "shop"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(root), "stays"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    yield root, owner
    owner.kill()
    owner.communicate()


@pytest.mark.parametrize("how", ["intact", "flipped", "gone"])
def test_a_reader_beside_an_owner_sees_every_commit(
    living: tuple[Path, subprocess.Popen[str]], how: str
) -> None:
    root, owner = living
    harm(root, how)
    with st.connect(root, read_only=True) as db:
        assert db.seq == COMMITS
        assert db["t"].count() == COMMITS
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write("go on\n")
        owner.stdin.flush()
        assert owner.stdout.readline() == "done\n"
        assert db.seq == COMMITS + 1
    with contextlib.ExitStack() as refused:
        if how == "gone":  # nothing proves that the owner has recovered the log
            refused.enter_context(pytest.raises(st.BusyError))
        vacuum_store(root, dry_run=False, grace_s=0)
    with st.connect(root, read_only=True) as db:
        assert db["t"].count() == COMMITS + 1


def test_a_log_whose_segments_are_gone_is_damage_and_no_older_store(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    with st.connect(root, background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db.checkpoint()
        db["t"].upsert({"id": 1})
    for file in (root / "wal").iterdir():
        file.unlink()
    with pytest.raises(st.CorruptionError):
        st.connect(root, read_only=True)


def test_an_owner_without_a_background_locks_mark_later_if_a_reader_held_it(tmp_path: Path) -> None:
    files, root = RealFiles(), tmp_path / "s"
    with st.connect(root, background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
    readers = files.lock(root / "wal" / "MARK", shared=True)
    assert readers is not None
    with st.connect(root, background=False) as db:
        readers.release()
        assert recovered_epoch(files, root) is None
        db["t"].upsert({"id": 1})
        assert recovered_epoch(files, root) is not None
