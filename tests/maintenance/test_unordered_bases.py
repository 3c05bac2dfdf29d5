"""A base that was loaded gets its order by a merge for just that, once, and without a new row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from siltstone.engine.order.ordered_rows import OrderedRead
from siltstone.local.store import LocalStore
from siltstone.maintenance.flush import bulk_load
from siltstone.maintenance.gc.superseded import Superseded
from siltstone.maintenance.merge import unordered as unordered_bases
from siltstone.maintenance.merge.merge_child import MergeChild
from siltstone.maintenance.merge.unordered import unordered
from siltstone.maintenance.schedule.overdue import due_steps
from siltstone.open.background import Background
from tests.maintenance.stores import open_store

IDS = [f"k{n:03}" for n in range(300)]


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStore]:
    """A store with a table of texts and one of numbers; both were loaded, and have no order."""
    monkeypatch.setattr(bulk_load, "LOAD_BYTES_MIN", 1)
    monkeypatch.setattr(unordered_bases, "ORDERED_ROWS_MIN", 200)
    with open_store(tmp_path / "s") as store:
        for name, kind in (("texts", "string"), ("numbers", "int64")):
            rows = pa.table({"id": IDS if kind == "string" else range(300), "v": range(300)})
            store.create_table(name, {"id": kind, "v": "int64"}, "id").upsert(rows)
        store.checkpoint()
        yield store


def ordered(db: LocalStore) -> list[bool]:
    (storage,) = [s for s in db._core.state().view.record.keyed if "texts" in s.folder]
    assert storage.base is not None
    return [run.is_ordered for run in storage.base.runs]


def test_a_merge_of_no_row_orders_a_loaded_base(
    db: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ordered(db) == [False]
    assert db["texts"].range().read_all()["id"].to_pylist() == IDS  # by a pass over all keys
    seq = db.seq
    merged = db.merge()
    assert ordered(db) == [False, True]
    assert (merged.tables, db.seq) == (("texts",), seq)
    monkeypatch.setattr(OrderedRead, "by_sort", None)
    assert db["texts"].range().read_all()["id"].to_pylist() == IDS
    number = db._core.state().view.record.number
    db.merge()
    assert db._core.state().view.record.number == number, "there is nothing to do again"


def test_the_background_begins_one_merge_for_it(
    db: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[MergeChild] = []
    monkeypatch.setattr(MergeChild, "start", lambda child: not started.append(child))
    reader = db._parts.site.tables.reader
    background = Background(db._owner(), reader, 64 << 20, Superseded(reader))
    for _ in range(3):
        background.merge()
    assert len(started) == 1, "whatever came of it"


def test_the_upkeep_of_an_end_has_it_to_do(db: LocalStore) -> None:
    view = db._core.state().view
    assert len(unordered(view.record)) == 1
    assert "merge" in due_steps(view, db._parts.site, 64 << 20)
    db.merge()
    view = db._core.state().view
    assert not unordered(view.record)
    assert "merge" not in due_steps(view, db._parts.site, 64 << 20)


def test_few_rows_wait_for_the_next_merge(db: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unordered_bases, "ORDERED_ROWS_MIN", 301)
    assert not unordered(db._core.state().view.record)
    db["numbers"].upsert({"id": 1, "v": 2})
    db.checkpoint()
    db.merge()
    assert ordered(db) == [False, True]


def test_a_dropped_table_wants_none(db: LocalStore) -> None:
    db.drop_table("texts")
    db.checkpoint()
    assert not unordered(db._core.state().view.record)
