"""A layout changes no value: dictionaries and views, whole or cut, are the values in them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as some

from siltstone.formats.types.layouts import plain_batch, plain_column, plain_schema, plain_type

INDEXES = (pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64())
VALUES = (pa.string(), pa.large_string(), pa.binary(), pa.string_view(), pa.binary_view())
texts = some.lists(some.none() | some.sampled_from(["", "a", "é", "b" * 20]), max_size=12)


@given(texts, some.sampled_from(INDEXES), some.sampled_from(VALUES), some.integers(0, 5))
def test_a_dictionary_is_its_values_wherever_it_is_cut(
    values: list[str | None], index: pa.DataType, kind: Any, start: int
) -> None:
    is_text = plain_type(kind) in {pa.string(), pa.large_string()}
    known = ["never", *dict.fromkeys(value for value in values if value is not None)]
    given_as = [value if is_text else value.encode() for value in known]
    places = [None if value is None else known.index(value) for value in values]
    column = pa.DictionaryArray.from_arrays(pa.array(places, index), pa.array(given_as, kind))
    expected = [v if v is None or is_text else v.encode() for v in values]
    for cut, wanted in ((column, expected), (column.slice(start), expected[start:])):
        for found in (plain_column(cut), plain_column(pa.chunked_array([cut, cut.slice(0, 0)]))):
            assert found.type == plain_type(column.type)
            assert found.to_pylist() == wanted


@given(texts)
def test_what_is_inside_of_lists_structs_and_maps_is_laid_out_plainly(
    values: list[str | None],
) -> None:
    inner = pa.array(values, pa.string()).dictionary_encode()
    keys = pa.array([f"k{n}" for n in range(len(values))], pa.string())
    offsets = [0, len(values) // 2, len(values)]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.ListArray.from_arrays(offsets, inner),
            pa.LargeListArray.from_arrays(offsets, inner),
            pa.MapArray.from_arrays(offsets, keys, inner),
        ],
        names=["list", "large", "map"],
    )
    schema = plain_schema(batch.schema)
    assert schema.types == [
        pa.list_(pa.string()), pa.large_list(pa.string()), pa.map_(pa.string(), pa.string()),
    ]  # fmt: skip
    found = plain_batch(batch, schema)
    assert found.to_pylist() == batch.to_pylist()
    held = pa.StructArray.from_arrays([inner], ["x"])
    assert plain_column(held).type == pa.struct([("x", pa.string())])
    assert plain_column(held).to_pylist() == held.to_pylist()


def test_a_plain_type_stays_as_it_is() -> None:
    for kind in (pa.int8(), pa.uuid(), pa.list_(pa.int8(), 2), pa.map_(pa.string(), pa.date64())):
        assert plain_type(kind) == kind
