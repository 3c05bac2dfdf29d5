"""The child of an owner: it ends with its owner, takes a slot, and imports nothing from here."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.maintenance.merge.merge_child import MergeChild
from siltstone.maintenance.merge.slots import Slot, take_slot
from tests.maintenance.ends import behind

HOLDS = """
import os, sys, time
import siltstone as st
from siltstone.open import owner
db = st.connect(sys.argv[1], background=False)
child = db._parts.owner.merge_child
os.environ["SILTSTONE_FAILPOINTS"] = ""
child.start()
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(3600)
print(child._process.pid, flush=True)
time.sleep(3600)
"""


def make_python(folder: Path, text: str) -> str:
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{text}\n")
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize("forks", ["alone", "fork"])
def test_a_child_ends_when_its_owner_is_killed(tmp_path: Path, forks: str) -> None:
    """Also beside a fork of the owner, which lives on."""
    root = behind(tmp_path / "s")
    waits = "import sys; from siltstone.maintenance.merge.lifeline import end_with_owner\n"
    waits += "end_with_owner(); import time; time.sleep(3600)"
    (tmp_path / "waits.py").write_text(waits)
    python = make_python(tmp_path, f"exec {sys.executable} {tmp_path}/waits.py")
    text = f"import sys; sys.executable = {python!r}\n{HOLDS}"
    owner = subprocess.Popen(
        [sys.executable, "-c", text, str(root), forks],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert owner.stdout is not None
    with owner.stdout:
        child = os.pidfd_open(int(owner.stdout.readline()))
    owner.kill()
    owner.wait()
    ended, _, _ = select.select([child], [], [], 120)
    os.close(child)
    if forks == "fork":
        os.killpg(owner.pid, signal.SIGKILL)
    assert ended


def test_a_child_imports_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = behind(tmp_path / "s")
    for name in ("json", "msgspec", "siltstone"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a')")
    monkeypatch.chdir(tmp_path)
    assert MergeChild(root).run(lambda: False)
    assert not (tmp_path / "ran").exists()


def test_a_child_keeps_no_directory_busy_and_finds_what_its_owner_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    python = make_python(tmp_path, f'echo "$PWD $PYTHONPATH" > {said}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "src")
    assert MergeChild(tmp_path, python=python).run(lambda: False)
    assert said.read_text() == f"/ {tmp_path / 'src'}\n"


def test_a_child_that_nobody_waits_for_starts_when_there_is_a_slot(tmp_path: Path) -> None:
    python = make_python(tmp_path, "exec sleep 3600")

    def child() -> MergeChild:
        return MergeChild(tmp_path, python=python, slot=lambda: take_slot(tmp_path, 1))

    first, second = child(), child()
    try:
        assert first.start()
        assert first.start()  # it runs
        assert not second.start()
        second.hurry(is_waited_for=True)
        assert second.start()
        second.stop()
        second.hurry(is_waited_for=False)
        assert not second.start()
        first.stop()
        assert second.start()
    finally:
        first.stop()
        second.stop()


def test_the_slots_of_a_user_are_private_and_where_there_is_no_place_none_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    slots = [take_slot(count=2) for _ in range(3)]
    assert [slot is None for slot in slots] == [False, False, True]
    assert (tmp_path / "siltstone").stat().st_mode & 0o777 == 0o700
    for slot in slots:
        if slot is not None:
            slot.release()
    assert take_slot(tmp_path / "nowhere", 1) == Slot()


def test_a_child_that_is_waited_for_is_ended_when_the_time_is_over(tmp_path: Path) -> None:
    python = make_python(tmp_path, "exec sleep 3600")
    child = MergeChild(tmp_path, python=python, slot=lambda: None)
    looks = iter([False, False, True])
    assert not child.run(lambda: next(looks))
    assert not child.is_running


def test_a_child_has_the_cache_of_its_owner_and_one_that_an_end_waits_for_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILTSTONE_SCRATCH", "of-the-owner")
    said = tmp_path / "said"
    python = make_python(tmp_path, f'echo "$SILTSTONE_SCRATCH $SILTSTONE_CACHE_BYTES_MAX" > {said}')
    settings = {"SILTSTONE_SCRATCH": "given"}
    child = MergeChild(tmp_path, python=python, slot=Slot, settings=settings)
    assert child.start()
    child._process.wait()
    child.reap()
    assert said.read_text() == "given \n"
    assert child.run(lambda: False)
    assert said.read_text() == " 0\n"


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_a_child_makes_files_of_new_rows_beside_those_of_old_ones_unless_an_end_waits_for_it(
    tmp_path: Path, *, is_waited_for: bool
) -> None:
    root, scratch, rows = tmp_path / "s", tmp_path / "scratch", 20_000

    def load(db: st.Store, first: int) -> None:
        ids = range(first, first + rows)
        db["t"].upsert(pa.table({"id": [*ids], "v": [f"value {n}" for n in ids]}))
        db.checkpoint()

    with st.connect(root, background=False, memory_bytes_max=1 << 20, scratch=scratch) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        load(db, 0)
        db.merge()
        assert [db["t"].get(n)["v"] for n in range(100)] == [f"value {n}" for n in range(100)]
    with st.connect(root, background=False) as db:
        load(db, rows)
    before = {*scratch.glob("*/parts/*")}
    assert before
    child = MergeChild(root, slot=Slot, settings={"SILTSTONE_SCRATCH": str(scratch)})
    if is_waited_for:
        assert child.run(lambda: False)
    else:
        assert child.start()
        child._process.wait()
        child.reap()
    after = {*scratch.glob("*/parts/*")}
    assert after == before if is_waited_for else after > before
    with st.connect(root, read_only=True, scratch=scratch) as db:
        assert db["t"].get(2 * rows - 1) == {"id": 2 * rows - 1, "v": f"value {2 * rows - 1}"}
        assert db["t"].count() == 2 * rows
