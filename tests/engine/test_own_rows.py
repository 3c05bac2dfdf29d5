"""What a transaction wrote it reads back, whether it is a few tuples by now or a memtable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels import own_rows
from siltstone.engine.levels.own_rows import OwnRows
from siltstone.local.store import LocalStore
from tests.engine.seams import fake_env, open_store
from tests.support.traced import NthLine


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with open_store(tmp_path / "db", fake_env()) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        table.upsert([{"id": n, "v": 0} for n in range(4)])
        yield db


def own(tx: Any, table: Any) -> OwnRows:
    return tx.rows.keyed_writes[table.id].own


def rows_of(table: Any) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.scan().read_all().to_pylist()}


def test_own_rows_stay_tuples_until_somebody_scans(store: LocalStore) -> None:
    with store.transaction() as tx:
        table = tx["t"]
        table.update(1, v=1)
        table.delete(2)
        table.upsert({"id": 9, "v": 9})
        assert [table.get(key) for key in (1, 2, 9)] == [{"id": 1, "v": 1}, None, {"id": 9, "v": 9}]
        assert own(tx, table).few == {1: (1, 1), 2: None, 9: (9, 9)}
        assert rows_of(table) == {0: 0, 1: 1, 3: 0, 9: 9}
        assert own(tx, table).few is None
        table.upsert({"id": 2, "v": 2})
        table.delete([9])
        assert [table.get(key) for key in (1, 2, 9)] == [{"id": 1, "v": 1}, {"id": 2, "v": 2}, None]
        assert rows_of(table) == {0: 0, 1: 1, 2: 2, 3: 0}
    assert rows_of(store["t"]) == {0: 0, 1: 1, 2: 2, 3: 0}


def test_more_than_a_few_own_rows_are_all_read_and_committed(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_rows, "FEW_MAX", 3)
    with store.transaction() as tx:
        table = tx["t"]
        for n in range(1, 8):
            table.upsert({"id": n, "v": n})
            assert (own(tx, table).few is None) == (n > 3)
            assert table.get(n) == {"id": n, "v": n}
        table.delete([1, 7])
        assert table.count() == 6
    assert rows_of(store["t"]) == {0: 0, **{n: n for n in range(2, 7)}}


def test_own_rows_from_before_and_after_a_new_column_are_committed_as_one(
    store: LocalStore,
) -> None:
    with store.transaction() as tx:
        table = tx["t"]
        table.upsert({"id": 1, "v": 1})
        table.add_column("w", "int64")
        table.upsert({"id": 2, "v": 2, "w": 2})
        assert table.get(1) == {"id": 1, "v": 1, "w": None}
        assert table.get(2) == {"id": 2, "v": 2, "w": 2}
    assert store["t"].get(1) == {"id": 1, "v": 1, "w": None}
    assert store["t"].get(2) == {"id": 2, "v": 2, "w": 2}


def test_an_interrupt_at_any_line_on_the_way_to_a_memtable_loses_no_own_row(
    store: LocalStore,
) -> None:
    table_schema: TableSchema = store["t"]._look()[2]  # type: ignore[attr-defined]

    def interrupt() -> None:
        raise KeyboardInterrupt

    nth, is_over = 0, False
    while not is_over:
        nth += 1
        rows = OwnRows(table_schema)
        rows.append(table_schema, [(1, 1), (2, 2)], [1, 2], [3])
        with NthLine(nth, interrupt, "levels/own_rows.py", "levels/memtable.py") as line:
            try:
                rows.whole()
            except KeyboardInterrupt:
                assert line.has_acted
        is_over = not line.has_acted
        found = [rows.find(key) for key in (1, 2, 3, 4)]
        assert [each and each.row for each in found] == [
            {"id": 1, "v": 1},
            {"id": 2, "v": 2},
            None,
            None,
        ], line.at
        assert found[2] is not None
        assert rows.whole().rows == 3, line.at
    assert nth > 20
