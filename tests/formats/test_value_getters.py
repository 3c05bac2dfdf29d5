"""The fastest way from a column to one value gives the value that Arrow gives."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as some

from siltstone.formats.rows import value_getter

VALUES = {
    "int8": some.integers(-128, 127),
    "int64": some.integers(-(1 << 63), (1 << 63) - 1),
    "uint64": some.integers(0, (1 << 64) - 1),
    "float64": some.floats(allow_nan=False),
    "string": some.text(max_size=9),
    "large_string": some.text(max_size=9),
    "bool": some.booleans(),
    "date32": some.dates(),
    "timestamp[us]": some.datetimes(),
    "binary": some.binary(max_size=9),
}


@given(some.data())
def test_a_getter_gives_what_arrow_gives_of_any_slice_with_nulls(data: some.DataObject) -> None:
    kind = data.draw(some.sampled_from(sorted(VALUES)))
    with_nulls = (
        some.one_of(VALUES[kind], some.none()) if data.draw(some.booleans()) else VALUES[kind]
    )
    values = data.draw(some.lists(with_nulls, max_size=20))
    start = data.draw(some.integers(0, len(values)))
    column = pa.array(values, pa.type_for_alias(kind)).slice(start, data.draw(some.integers(0, 20)))
    get = value_getter(column)
    found = [get(offset) for offset in range(len(column))]
    assert found == column.to_pylist()
    assert [type(value) for value in found] == [type(value) for value in column.to_pylist()]
