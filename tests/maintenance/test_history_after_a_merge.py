"""After a merge memory holds the index of the rows behind it alone, whatever was flushed since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from siltstone.engine.levels.history_run import HistoryRun
from siltstone.local.store import LocalStore
from siltstone.maintenance.schedule.unmerged import history_bytes
from tests.maintenance.stores import open_store, rows

OPTIONS = {"memtable_bytes_max": 4096, "memory_bytes_max": 1 << 20}


@pytest.fixture(params=[False, True], ids=["fake", "lance"])
def db(request: pytest.FixtureRequest, tmp_path: Path):
    with open_store(tmp_path / "db", real_lance=request.param, **OPTIONS) as store:
        store._owner().checkpointer._resident_bytes_max = 0  # what is flushed is history at once
        yield store


def upsert(db: LocalStore, first: int, count: int) -> None:
    db["t"].upsert([{"id": first + n, "v": f"{first}"} for n in range(count)])
    db.checkpoint()


def merge_beside(db: LocalStore, meanwhile: Callable[[], None]) -> None:
    """Merge, with something that happens between its plan and its publish."""

    def execute(tasks):
        meanwhile()
        return [task.run_on(db._parts.site.tables) for task in tasks]

    db._owner().merger.merge(execute=execute)
    db._owner().checkpointer.refresh()


def run_of(db: LocalStore) -> HistoryRun:
    (levels,) = db._core.state().view.levels.values()
    (run,) = levels.flushed
    assert isinstance(run, HistoryRun)
    return run


@pytest.mark.parametrize("is_read", [False, True])
def test_rows_that_a_merge_folded_leave_the_index_of_history(db, is_read) -> None:
    db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
    upsert(db, 0, 100)
    db.merge()
    upsert(db, 0, 300)

    def meanwhile() -> None:
        upsert(db, 250, 100)
        if is_read:
            assert db["t"].get(260) == {"id": 260, "v": "250"}

    merge_beside(db, meanwhile)
    run = run_of(db)
    assert run.rows == 100, "the merge folded the 300 before it"
    assert history_bytes(db._core.state().view) <= 100 * 64
    expected = [(n, "250" if n >= 250 else "0") for n in range(350)]
    assert rows(db["t"]) == expected
    assert [db["t"].get(n)["v"] for n in (0, 249, 250, 349)] == ["0", "0", "250", "250"]
    upsert(db, 340, 20)
    assert run_of(db).rows == 120
    assert db["t"].count() == 360


def test_a_snapshot_from_before_the_merge_keeps_its_rows(db) -> None:
    db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
    upsert(db, 0, 100)
    db.merge()
    upsert(db, 0, 50)
    with db.snapshot() as before:
        merge_beside(db, lambda: upsert(db, 25, 50))
        assert rows(before["t"]) == [(n, "0") for n in range(100)]
        assert rows(db["t"]) == [(n, "25" if 25 <= n < 75 else "0") for n in range(100)]


def test_an_index_that_was_read_from_history_is_read_anew_for_the_rows_behind_a_merge(
    tmp_path,
) -> None:
    first = open_store(tmp_path / "db", real_lance=True, **OPTIONS)
    first.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
    upsert(first, 0, 100)
    first.merge()
    upsert(first, 0, 60)
    opened = []

    def meanwhile() -> None:
        upsert(first, 30, 60)
        first.close()
        opened.append(open_store(tmp_path / "db", real_lance=True, **OPTIONS))
        assert opened[0]["t"].get(40)["v"] == "30"
        assert run_of(opened[0]).rows == 120, "read as one"

    def execute(tasks):
        found = [task.run_on(first._parts.site.tables) for task in tasks]
        meanwhile()
        return found

    first._owner().merger.merge(execute=execute)
    with opened[0] as db:
        db._owner().checkpointer.refresh()
        assert run_of(db).rows == 60
        assert [db["t"].get(n)["v"] for n in (0, 40, 85, 99)] == ["0", "30", "30", "0"]
        assert db["t"].count() == 100
