"""An index is asked for what finds few rows, and for nothing else; the answers are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st
from siltstone.engine.filter.filters import filter_of
from siltstone.engine.read.index_use import prefilter_of
from siltstone.storage.tables.tables import PinnedTable

ROWS = 40_000
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.int64()),
        ("state", pa.string()),
        ("total", pa.int64()),
        ("price", pa.float64()),
    ]
)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    root = tmp_path_factory.mktemp("index_use") / "db"
    with st.connect(root, background=False) as db:
        orders = db.create_table("orders", SCHEMA, "id")
        numbers = range(ROWS)
        columns = {
            "id": numbers,
            "customer": [n * 7919 % 20_000 for n in numbers],
            "state": ["open" if n % 3 else "done" for n in numbers],
            "total": [n % 20_000 for n in numbers],
            "price": [float(n % 20_000) for n in numbers],
        }
        orders.upsert(pa.table(columns, SCHEMA))
        db.checkpoint()
        db.merge()
        for column, kind in (("customer", "btree"), ("state", "bitmap"), ("price", "btree")):
            orders.create_index(column, kind)
        orders.upsert([{"id": n, "customer": 5} for n in range(100, 110)], "null")
        yield db


def pinned(db: st.Store) -> PinnedTable:
    (storage,) = db._core.state().view.record.keyed
    return db._parts.site.tables.reader.open(storage.base)


def used(db: st.Store, wanted: Any) -> str | None:
    """Return what the indexes are asked for; None: nothing."""
    names = {name: name for name in SCHEMA.names}
    prefilter, is_indexed = prefilter_of(pinned(db), filter_of(wanted, SCHEMA), names)
    return str(prefilter) if is_indexed else None


CUSTOMER = pc.field("customer") == 77


@pytest.mark.parametrize(
    ("wanted", "asked"),
    [
        ("customer = 77", "`customer` = 77"),
        ("customer BETWEEN 70 AND 73", "(`customer` >= 70) AND (`customer` <= 73)"),
        ("customer = 77 AND state = 'open'", "`customer` = 77"),
        ("state = 'open' AND (total > 7 AND customer = 77)", "`customer` = 77"),
        ("customer = 77 AND customer < 900000", "`customer` = 77"),
        ("customer = 77 AND state = 'lost'", "(`customer` = 77) AND (`state` = 'lost')"),
        ("state = 'open'", None),
        ("customer > 10", None),
        ("total = 77", None),
        ("price = 77.0", None),
        ("customer = 77 OR total = 5", None),
        ("NOT customer = 77", None),
        (CUSTOMER, "`customer` = 77"),
        (CUSTOMER & (pc.field("total") > 3), "`customer` = 77"),
        (pc.field("state") == "open", None),
    ],
    ids=str,
)
def test_an_index_is_asked_for_what_finds_few_rows(
    db: st.Store, wanted: Any, asked: str | None
) -> None:
    assert used(db, wanted) == asked


@pytest.mark.parametrize(
    "wanted",
    [
        "customer = 77",
        "customer = 5",
        "customer = 77 AND state = 'open'",
        "customer IN (5, 77) AND state IS NULL",
        "customer BETWEEN 3 AND 5 AND NOT state = 'done'",
        "customer IS NULL",
        "price = 77.0 AND customer > 3",
    ],
)
def test_the_rows_are_the_same_as_without_an_index(db: st.Store, wanted: str) -> None:
    orders = db["orders"]
    rows = orders.to_arrow()
    table = pa.table({name: rows[name] for name in rows.column_names})
    expected = filter_of(wanted, SCHEMA).keep(table.combine_chunks().to_batches()[0])
    found = orders.to_arrow(["id"], wanted)
    assert sorted(found["id"].to_pylist()) == sorted(expected["id"].to_pylist())
    assert orders.count(wanted) == expected.num_rows


def test_a_long_chain_of_another_engine_is_answered(db: st.Store) -> None:
    chain = pc.field("customer") == 0
    for number in range(1, 40):
        chain |= pc.field("customer") == number
    rows = db["orders"].to_arrow(["customer"]).column("customer").to_pylist()
    assert db["orders"].count(chain) == sum(0 <= n < 40 for n in rows if n is not None)


def test_a_key_is_found_without_an_index_where_memory_has_no_room(tmp_path: Path) -> None:
    rows = 110_000
    with st.connect(tmp_path / "db", background=False, memory_bytes_max=6 << 20) as db:
        table = db.create_table("t", {"id": "int64", "v": "string"}, "id")
        ids = pa.array([n * 7919 % rows for n in range(rows)])
        table.upsert(pa.table({"id": ids, "v": [f"v{n}" for n in ids.to_pylist()]}))
        db.checkpoint()
        db.merge()
        db.optimize()
        assert table.indexes() == []
        assert table.get(4711) == {"id": 4711, "v": "v4711"}
        assert table.to_arrow(["v"], "id IN (4711, -1)").to_pylist() == [{"v": "v4711"}]
        assert table.get(-1) is None
        (levels,) = db._core.state().view.levels.values()
        assert levels.base is not None
        assert levels.base._index is None
