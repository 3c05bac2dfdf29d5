"""The first readers of a view that maintenance swapped build nothing that it could have built."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from siltstone.engine.levels import visibility
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.local.store import LocalStore
from siltstone.maintenance.flush import checkpoint
from siltstone.storage.lance.files.deletions import HiddenRows
from tests.maintenance.stores import open_store
from tests.maintenance.test_history_after_a_merge import merge_beside, run_of

KEYED = {"id": "int64", "v": "int64"}
BUILDS = (
    *((HistoryRun, "_placed"), (HistoryRun, "_load"), (Base, "_load"), (Base, "_by_scan")),
    *((visibility, "nothing_over"), (HiddenRows, "live")),
)
MAINTENANCE = "maintenance"


class Built:
    """What was built, and whether a reader's thread did."""

    def __init__(self) -> None:
        self.by_readers, self.by_maintenance = list[str](), list[str]()

    def note(self, name: str) -> None:
        is_ours = threading.current_thread().name == MAINTENANCE
        (self.by_maintenance if is_ours else self.by_readers).append(name)

    @contextmanager
    def nothing(self) -> Iterator[None]:
        """Check that the calls inside build nothing."""
        del self.by_readers[:]
        yield
        assert self.by_readers == []


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Built:
    found = Built()

    def watch(home: object, name: str) -> None:
        whole = getattr(home, name)

        @functools.wraps(whole)
        def noted(*given: object, **named: object) -> object:
            found.note(name)
            return whole(*given, **named)

        monkeypatch.setattr(home, name, noted)

    for home, name in BUILDS:
        watch(home, name)
    return found


@pytest.fixture(params=[False, True], ids=["fake", "lance"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalStore]:
    with open_store(tmp_path / "db", real_lance=request.param, memory_bytes_max=8 << 20) as store:
        store.create_table("t", KEYED, primary_key="id")
        yield store


def maintain(work: Callable[[], object]) -> None:
    """Do something as the background does: in another thread."""
    thread = threading.Thread(target=work, name=MAINTENANCE)
    thread.start()
    thread.join()


def upsert(db: LocalStore, first: int, count: int, v: int) -> None:
    db["t"].upsert([{"id": first + n, "v": v} for n in range(count)])


def rows_of(db: LocalStore) -> dict[int, int]:
    return {row["id"]: row["v"] for row in db["t"].to_arrow().to_pylist()}


def spill(db: LocalStore) -> None:
    """Let no flushed memtable stay in memory."""
    db._owner().checkpointer._resident_bytes_max = 0


def test_readers_after_a_checkpoint_that_spills_build_nothing(db, built: Built) -> None:
    spill(db)
    for turn in range(3):
        upsert(db, 50 * turn, 100, turn)
        assert len(rows_of(db)) == 50 * turn + 100
        maintain(db.checkpoint)
        assert isinstance(run_of(db), HistoryRun)
        with built.nothing():
            assert db["t"].get(50 * turn) == {"id": 50 * turn, "v": turn}
            assert db["t"].get(-1) is None
            assert rows_of(db)[50 * turn + 99] == turn


def test_readers_after_a_merge_build_nothing(db, built: Built) -> None:
    spill(db)
    upsert(db, 0, 300, 0)
    db.checkpoint()
    db.merge()
    for key in range(100):  # so many misses make base resident
        assert db["t"].get(key) == {"id": key, "v": 0}
    upsert(db, 0, 100, 1)
    db.checkpoint()
    assert rows_of(db)[99] == 1

    def meanwhile() -> None:
        upsert(db, 50, 100, 2)
        db.checkpoint()
        assert db["t"].get(60) == {"id": 60, "v": 2}

    maintain(lambda: merge_beside(db, meanwhile))
    assert "_load" in built.by_maintenance, "the resident rows of the parts that the merge wrote"
    with built.nothing():
        assert [db["t"].get(key)["v"] for key in (0, 60, 149, 150, 299)] == [1, 2, 2, 0, 0]
        found = rows_of(db)
    assert found == {n: 1 if n < 50 else 2 if n < 150 else 0 for n in range(300)}


@pytest.mark.parametrize("real_lance", [False, True], ids=["fake", "lance"])
def test_what_nobody_read_is_not_built(tmp_path: Path, real_lance: bool, built: Built) -> None:
    with open_store(tmp_path / "db", real_lance=real_lance) as db:
        db.create_table("t", KEYED, primary_key="id")
        upsert(db, 0, 10, 0)
        db.checkpoint()
    with open_store(tmp_path / "db", real_lance=real_lance) as db:
        spill(db)
        upsert(db, 5, 10, 1)
        maintain(db.checkpoint)
        assert not run_of(db).indexed
        assert "_load" not in built.by_maintenance
        assert rows_of(db) == {n: 0 if n < 5 else 1 for n in range(15)}
        assert "_load" in built.by_readers


@pytest.mark.parametrize("is_altered", [False, True])
def test_commits_between_the_build_and_the_swap_are_read(
    db, is_altered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill(db)
    upsert(db, 0, 100, 0)
    db.checkpoint()
    db.merge()
    upsert(db, 0, 50, 1)
    assert rows_of(db)[0] == 1
    made_ready, done = checkpoint.made_ready, list[None]()

    def and_then(*given: object) -> object:
        found = made_ready(*given)
        if not done:
            done.append(None)
            upsert(db, 90, 20, 2)
            db["t"].delete(5)
            if is_altered:
                db["t"].add_column("w", "int64")
                db["t"].upsert({"id": 7, "v": 3, "w": 4})
        return found

    monkeypatch.setattr(checkpoint, "made_ready", and_then)
    db.checkpoint()
    assert done
    expected = {n: 1 if n < 50 else 2 if n >= 90 else 0 for n in range(110) if n != 5}
    if is_altered:
        expected[7] = 3
        assert db["t"].get(7) == {"id": 7, "v": 3, "w": 4}
    assert rows_of(db) == expected
    assert db["t"].get(5) is None
    db.checkpoint()
    db.merge()
    assert rows_of(db) == expected
