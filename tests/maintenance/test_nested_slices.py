"""Rows of structs in structs reach Lance whole, however the Arrow data they came in was cut.

Lance's Arrow counts the offset of a struct twice where the struct is a field of another one, and
panics: one commit of more rows than a batch of the checkpoint stopped all checkpoints.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from siltstone.local.store import LocalStore
from siltstone.storage.tables.staging import arranged
from tests.maintenance.stores import open_store

INNER = pa.struct([("n", pa.int64()), ("s", pa.string())])
DEEP = pa.struct([("x", INNER), ("b", pa.bool_())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("deep", DEEP),
        ("many", pa.list_(DEEP)),
        ("inside", pa.struct([("l", pa.list_(DEEP))])),
    ]
)
BATCH_ROWS = 65_536


def deep_of(number: int) -> dict | None:
    inner = None if number % 5 == 1 else {"n": number, "s": str(number)}
    return None if number % 7 == 3 else {"x": inner, "b": number % 3 == 0}


def table_of(count: int, start: int = 0) -> pa.Table:
    numbers = range(start, start + count)
    many = [[deep_of(n + k) for k in range(n % 3)] for n in numbers]
    columns = [
        list(numbers),
        [deep_of(n) for n in numbers],
        many,
        [{"l": items} if items else None for items in many],
    ]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def stored(table) -> list[dict]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


def sliced_deep(count: int, first: int) -> pa.StructArray:
    """Structs of structs whose offset is that of a slice."""
    return pa.array([deep_of(n) for n in range(first + count)], DEEP).slice(first, count)


@pytest.fixture
def store(tmp_path: Path):
    with open_store(tmp_path / "shop", real_lance=True) as db:
        yield db


def test_a_commit_of_more_rows_than_a_batch_is_flushed(store: LocalStore):
    rows = table_of(BATCH_ROWS + 1_000)
    store.create_table("t", SCHEMA, primary_key="id")
    store["t"].upsert(rows)
    store.checkpoint()
    assert stored(store["t"]) == rows.to_pylist()
    store["t"].delete(list(range(BATCH_ROWS + 500)))
    store.checkpoint()
    assert stored(store["t"]) == rows.slice(BATCH_ROWS + 500).to_pylist()
    store.merge()
    assert stored(store["t"]) == rows.slice(BATCH_ROWS + 500).to_pylist()


def test_a_slice_of_a_table_is_upserted_and_flushed(store: LocalStore):
    rows = table_of(400)
    store.create_table("t", SCHEMA, primary_key="id")
    store["t"].upsert(rows.slice(100, 50))
    store.checkpoint()
    store["t"].upsert(rows.slice(130, 70))
    store.checkpoint()
    store.merge()
    store.optimize()
    assert stored(store["t"]) == rows.slice(100, 100).to_pylist()


def test_batches_of_a_cut_table_are_appended(store: LocalStore):
    rows = table_of(350)
    store.create_table("p", SCHEMA)
    store["p"].append(pa.RecordBatchReader.from_batches(SCHEMA, rows.to_batches(max_chunksize=100)))
    store["p"].append(rows.slice(10, 5))
    store["p"].overwrite(rows.slice(200, 50))
    assert stored(store["p"]) == rows.slice(200, 50).to_pylist()


def test_a_cut_table_is_staged_and_attached(store: LocalStore):
    rows = table_of(350)
    store.create_table("t", SCHEMA, primary_key="id")
    store["t"].upsert(rows.slice(0, 10))
    task = store.stage("t", "upsert")
    staged = task.run(rows.slice(100, 120))
    with store.transaction() as tx:
        tx.attach(task, [staged])
    store.checkpoint()
    store.merge()
    assert stored(store["t"]) == [*rows.slice(0, 10).to_pylist(), *rows.slice(100, 120).to_pylist()]


def test_a_batch_for_lance_has_no_struct_in_a_struct_with_an_offset():
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 5], pa.int32()), sliced_deep(5, 10))
    batch = pa.record_batch([lists, sliced_deep(2, 7)], names=["many", "deep"])
    found = arranged(batch, batch.schema)
    assert found.equals(batch)
    assert [_offsets(column) for column in found.columns] == [{0}, {0}]


def _offsets(array: pa.Array) -> set[int]:
    """Return the offsets of an array and of all arrays in it."""
    if isinstance(array, pa.StructArray):
        children = [array.field(at) for at in range(array.type.num_fields)]
    elif isinstance(array, pa.ListArray):
        children = [array.values]
    else:
        children = []
    return {array.offset}.union(*map(_offsets, children))
