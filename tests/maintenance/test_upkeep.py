"""A store that only short programs open is merged, optimized and vacuumed without being asked."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone import upkeep
from siltstone.errors import BusyError, UnavailableError
from siltstone.local.store import LocalStore
from siltstone.maintenance.schedule import overdue
from siltstone.maintenance.schedule.overdue import UPKEEP, vacuumed_s_ago
from siltstone.maintenance.schedule.scheduler import HISTORY_PARTS_MAX
from siltstone.open import owner
from siltstone.options import Options
from siltstone.storage.files.files import RealFiles
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.manifest.ownership import read_holder

SMALL = 1 << 20
"""Of memory: the indexes of 512 unmerged rows are the share of it at which a merge is due."""
ROWS = 600
PROGRAM = """
import sys
import pyarrow as pa
import siltstone as st
db = st.connect(sys.argv[1], memory_bytes_max=1 << 20, retention="0s")
if not db.tables():
    db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
db["t"].upsert(pa.table({"id": range(600), "v": [int(sys.argv[2])] * 600}))
db.checkpoint()
if sys.argv[3] == "close":
    db.close()
"""


def run(root: Path, value: int, end: str = "close") -> None:
    """Run a short program to its end; it says nothing, and whatever it started is let go of."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root), str(value), end],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")


def wait_for_upkeep(root: Path) -> None:
    """Wait until the child has ended that was started before: it has the flock until then."""
    with (root / "jobs" / UPKEEP).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def age(root: Path, seconds: float = 7200) -> None:
    """Have the files of the records written some hours ago."""
    for file in (root / "manifest").iterdir():
        then = file.stat().st_mtime - seconds
        os.utime(file, (then, then))


def status_of(root: Path) -> st.TableStatus:
    with st.connect(root, read_only=True) as db:
        return db.status().tables[0]


def fill(db: LocalStore, rows: int = ROWS) -> None:
    if not db.tables():
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    db["t"].upsert(pa.table({"id": range(rows), "v": [1] * rows}))
    db.checkpoint()


def ago(root: Path) -> float:
    return vacuumed_s_ago(RealFiles(), ManifestStore(RealFiles(), root))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The stores for which a child would have been started."""
    found: list[Path] = []
    monkeypatch.setattr(overdue, "detach_upkeep", lambda root, *_: found.append(root))
    return found


def test_short_programs_leave_a_store_that_is_merged_and_vacuumed(tmp_path: Path) -> None:
    root = tmp_path / "s"
    for value in range(2):
        run(root, value)
        wait_for_upkeep(root)
        assert status_of(root).unmerged_rows == 0
    assert not (root / "manifest" / "FLOOR").exists()  # it is younger than an hour
    records = len([*(root / "manifest").glob("*.json")])
    age(root)
    run(root, 2)
    wait_for_upkeep(root)
    assert ago(root) < 3600
    assert len([*(root / "manifest").glob("*.json")]) < records  # by the owner's own retention
    found = status_of(root)
    assert (found.base_rows, found.unmerged_rows) == (ROWS, 0)
    with st.connect(root, background=False) as db:
        assert set(db["t"].to_arrow()["v"].to_pylist()) == {2}
        assert db.verify(deep=True).is_sound


@pytest.mark.parametrize(("memory_bytes_max", "looks"), [(1 << 30, 0), (SMALL, 1)])
def test_an_end_opens_histories_only_where_a_merge_may_be_due(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    started: list[Path],
    memory_bytes_max: int,
    looks: int,
) -> None:
    exact: list[object] = []
    monkeypatch.setattr(overdue, "wants_merge", lambda view, _: exact.append(view) or True)
    with st.connect(tmp_path / "s", memory_bytes_max=memory_bytes_max) as db:
        fill(db)
    assert (len(exact), len(started)) == (looks, looks)


def test_a_program_that_ends_without_close_starts_it_too(tmp_path: Path) -> None:
    run(tmp_path / "s", 1, "exit")
    wait_for_upkeep(tmp_path / "s")
    assert status_of(tmp_path / "s").unmerged_rows == 0


def test_a_history_of_many_small_parts_is_optimized_after_the_end(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with st.connect(root, background=False) as db:
        for _ in range(HISTORY_PARTS_MAX + 1):
            fill(db, 1)
        db.create_table("p", {"v": "int64"})
        for _ in range(3):
            db["p"].append([{"v": 1}])
    st.connect(root).close()
    wait_for_upkeep(root)
    assert status_of(root).history_parts < HISTORY_PARTS_MAX // 2
    with st.connect(root, read_only=True) as db:
        assert [job.tables for job in db.jobs()] == [("t",)]


def test_a_store_that_is_deleted_after_its_end_stays_so(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with st.connect(root, memory_bytes_max=SMALL) as db:
        fill(db)
    with (root / "jobs" / UPKEEP).open("rb") as file:
        shutil.rmtree(root)
        fcntl.flock(file, fcntl.LOCK_EX)
    assert not root.exists()


def test_the_end_of_a_deleted_store_makes_no_directory(tmp_path: Path, started: list[Path]) -> None:
    root = tmp_path / "s"
    db = st.connect(root, memory_bytes_max=SMALL)
    fill(db)
    shutil.rmtree(root)
    with contextlib.suppress(st.SiltstoneError):
        db.close()
    assert not root.exists()
    assert started == []


def test_an_owner_that_is_behind_starts_one_child(tmp_path: Path, started: list[Path]) -> None:
    root = tmp_path / "s"
    with st.connect(root, memory_bytes_max=SMALL) as db:
        fill(db)
    assert started == [root]
    assert read_holder(RealFiles(), root).ended is None  # no vacuum is due


def test_while_the_child_of_an_earlier_end_runs_no_other_is_started(
    tmp_path: Path, started: list[Path]
) -> None:
    root = tmp_path / "s"
    with st.connect(root, memory_bytes_max=SMALL) as db:
        fill(db)
    with (root / "jobs" / UPKEEP).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        st.connect(root, memory_bytes_max=SMALL).close()
        assert started == [root]
    st.connect(root, memory_bytes_max=SMALL).close()
    assert started == [root, root]


def closed_without_background(root: Path) -> None:
    with st.connect(root, memory_bytes_max=SMALL, background=False) as db:
        fill(db)
        age(root)


def closed_with_nothing_to_do(root: Path) -> None:
    with st.connect(root) as db:
        fill(db)


def closed_in_memory(_: Path) -> None:
    with st.connect(":memory:", memory_bytes_max=SMALL) as db:
        fill(db)


def closed_by_a_reader(root: Path) -> None:
    closed_without_background(root)
    st.connect(root, memory_bytes_max=SMALL, read_only=True).close()


@pytest.mark.parametrize(
    "use",
    [
        closed_without_background,
        closed_with_nothing_to_do,
        closed_in_memory,
        closed_by_a_reader,
    ],
)
def test_no_child_is_started(
    tmp_path: Path, started: list[Path], use: Callable[[Path], None]
) -> None:
    use(tmp_path / "s")
    assert started == []
    assert not (tmp_path / "s" / "jobs" / UPKEEP).exists()


def test_a_child_that_cannot_be_started_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with st.connect(tmp_path / "s", memory_bytes_max=SMALL) as db:
        fill(db)
        monkeypatch.setenv("PATH", "")
    assert "its upkeep is overdue: UnavailableError: cannot start the upkeep" in caplog.text
    with st.connect(tmp_path / "s", background=False) as db:
        assert db["t"].count() == ROWS


def test_an_end_that_cannot_look_at_the_records_is_a_warning(
    tmp_path: Path, started: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    with st.connect(tmp_path / "s", memory_bytes_max=SMALL) as db:
        fill(db)
        (tmp_path / "s" / "manifest").rename(tmp_path / "away")
    assert "cannot tell what is overdue" in caplog.text
    assert started == []


def test_the_child_owns_the_store_at_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Path]
) -> None:
    root, options = tmp_path / "s", Options(memory_bytes_max=SMALL, retention_s=0)
    with st.connect(root, background=False) as db:
        for _ in range(HISTORY_PARTS_MAX):
            fill(db, 1)
    with st.connect(root, memory_bytes_max=SMALL) as db:
        fill(db)
        age(root)
    assert started == [root]
    monkeypatch.setattr(owner, "own", lambda *_, **__: pytest.fail("it would keep others out"))
    assert upkeep.keep_up(root, options) == []
    assert status_of(root).unmerged_rows == 0
    assert ago(root) < 3600
    merged = ManifestStore(RealFiles(), root).newest().number
    assert upkeep.keep_up(root, options) == []  # a second one finds nothing to do
    assert ManifestStore(RealFiles(), root).newest().number == merged


def test_after_an_owner_that_was_killed_the_vacuum_is_left_to_a_later_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    killed = f"{PROGRAM}\nimport os\nos.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", killed, str(root), "1", "exit"], check=False)
    assert done.returncode == -9
    age(root)
    monkeypatch.setattr(upkeep, "VACUUM_PAUSE_S", 0)
    (error,) = upkeep.keep_up(root, Options(memory_bytes_max=SMALL))
    assert isinstance(error, BusyError)
    assert status_of(root).unmerged_rows == 0  # the merge is none of the owner's
    assert not (root / "manifest" / "FLOOR").exists()
    st.connect(root).close()
    wait_for_upkeep(root)
    assert ago(root) < 3600


def test_a_step_that_fails_keeps_no_other_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Path]
) -> None:
    root = tmp_path / "s"
    with st.connect(root, memory_bytes_max=SMALL) as db:
        fill(db)
        age(root)
    assert started == [root]

    def fails(*_: object, **__: object) -> None:
        raise UnavailableError("no disk")

    monkeypatch.setattr("siltstone.maintenance.merge.merge.Merger.merge", fails)
    (error,) = upkeep.keep_up(root, Options(memory_bytes_max=SMALL))
    assert str(error) == "no disk"
    assert ago(root) < 3600


def test_an_owner_counts_from_the_last_vacuum_of_any_process(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with st.connect(root) as db:
        db.vacuum(dry_run=False)
    age(root, 3000)
    with st.connect(root) as db:
        scheduler = db._parts.owner.scheduler
        assert time.monotonic() - scheduler._vacuumed_at >= 3000
