"""A scan leaves out exactly the hidden rows, whatever their share and the types of the columns."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from siltstone.engine.levels.kept_batches import (
    batches_kept,
    batches_kept_by_position,
    rows_kept_of,
)
from siltstone.formats.bits import without_some
from siltstone.storage.tables.values import POSITION

ROWS = 1_000
TEXTS = [None if n % 7 == 3 else f"text {n}" * (n % 5) for n in range(ROWS)]
NUMBERS = pa.array([None if n % 11 == 5 else n for n in range(ROWS)], pa.int64())
FLOATS = pa.array(np.arange(4.0 * ROWS, dtype=np.float32))
COLUMNS: dict[str, pa.Array] = {
    "int64": NUMBERS,
    "bool": pa.array([n % 3 == 0 for n in range(ROWS)]),
    "decimal": NUMBERS.cast(pa.decimal128(30, 2)),
    "timestamp": NUMBERS.cast(pa.timestamp("us", "UTC")),
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "binary": pa.array([text and text.encode() for text in TEXTS]),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "list": pa.array([list(range(n % 4)) for n in range(ROWS)]),
    "struct": pa.array([{"a": n, "b": {"c": str(n)}} for n in range(ROWS)]),
    "map": pa.array([[("k", n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "vector": pa.FixedSizeListArray.from_arrays(FLOATS, 4),
    "null": pa.nulls(ROWS),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(TEXTS)),
    "tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [2, 2]), pa.FixedSizeListArray.from_arrays(FLOATS, 4)
    ),
}
HIDDEN = (0, 1, 10, 124, 126, 500, 999, 1_000)


def hidden_rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).choice(ROWS, count, replace=False)


def batches(whole: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Cut at places that no byte of bits begins at."""
    cuts = [0, 3, 130, 131, 700, ROWS]
    return [whole.slice(a, b - a) for a, b in pairwise(cuts)]


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("kind", COLUMNS)
def test_kept_rows_of_a_column_are_those_that_arrow_takes(kind: str, hidden: int) -> None:
    whole = pa.record_batch({"n": NUMBERS, kind: COLUMNS[kind]})
    kept = without_some(ROWS, [hidden_rows(hidden)])
    wanted = pa.Table.from_batches([whole]).filter(kept.mask())
    found = list(batches_kept(batches(whole), kept.mask()))
    assert all(batch.num_rows for batch in found)
    assert pa.Table.from_batches(found, whole.schema).equals(wanted)
    place = pa.array(np.arange(ROWS))
    with_places = whole.append_column(POSITION, place)  # type: ignore[attr-defined]
    by_place = list(batches_kept_by_position(batches(with_places), kept))
    assert pa.Table.from_batches(by_place, whole.schema).equals(wanted)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_batch_without_columns_keeps_its_count_of_rows(hidden: int) -> None:
    kept = without_some(ROWS, [hidden_rows(hidden)]).mask()
    empty = pa.record_batch({"n": NUMBERS}).select([])
    assert rows_kept_of(empty, kept, ROWS - hidden).num_rows == ROWS - hidden


def test_schema_and_metadata_of_a_batch_stay() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), metadata={"a": "b"})], metadata={"c": "d"})
    whole = pa.RecordBatch.from_arrays([NUMBERS], schema=schema)
    kept = without_some(ROWS, [hidden_rows(5)]).mask()
    found = rows_kept_of(whole, kept, ROWS - 5)
    assert found.schema.equals(schema, check_metadata=True)
    assert found.num_rows == ROWS - 5
