"""The encoder made for a schema gives the rows and the errors of the general way, word for word."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from siltstone.formats import schema
from siltstone.formats.conversion.row_codec import RowCodec
from siltstone.formats.conversion.row_encoder import COLUMNS_MAX
from siltstone.formats.manifest import Column, Schema
from tests.formats.test_rows import VALUES

HOSTILE_NAMES = (
    "a",
    "class",
    "row",
    "general",
    "v0",
    "n0",
    'he said "no"',
    "it's",
    "two\nlines",
    "back\\slash",
    "{v0}",
    "%s",
    "import os",
    "naïve",
    "名",
    "\u202e",
    "); raise SystemExit(1)  #",
    "None",
    " ",
    "\0",
)


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


HOSTILE_VALUES = (
    None,
    True,
    False,
    np.bool_(True),
    0,
    -1,
    1 << 7,
    1 << 31,
    -(1 << 63),
    1 << 63,
    1 << 64,
    1 << 200,
    Whole(3),
    np.int8(3),
    np.uint64(1 << 63),
    0.5,
    float("nan"),
    float("inf"),
    1e300,
    np.float32(0.1),
    "",
    "plain",
    "naïve",
    "\ud800",
    Text("sub"),
    "\0",
    b"",
    b"bytes",
    bytearray(b"b"),
    memoryview(b"m"),
    Decimal("1.25"),
    Decimal("NaN"),
    dt.date(2024, 2, 29),
    dt.datetime(2024, 1, 1),  # noqa: DTZ001
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    dt.time(1, 2, 3),
    dt.timedelta(1),
    [1],
    {"x": 1},
    object,
)

Encode = Callable[[Mapping[str, object]], object]


def result_of(encode: Encode, row: Mapping[str, object]) -> tuple[str, str]:
    try:
        found = encode(row)
    except Exception as error:  # noqa: BLE001 - whatever one way raises, the other has to raise
        return type(error).__name__, str(error)
    assert isinstance(found, tuple)
    return "row", repr([(type(value), value) for value in found])


@some.composite
def schemas(draw: some.DrawFn) -> Schema:
    names = draw(some.lists(some.sampled_from(HOSTILE_NAMES), min_size=1, max_size=6, unique=True))
    kinds = [draw(some.sampled_from(sorted(VALUES))) for _ in names]
    return Schema(
        1,
        tuple(
            Column(place, name, schema.encode_type(schema.parse_type(kind)), draw(some.booleans()))
            for place, (name, kind) in enumerate(zip(names, kinds, strict=True))
        ),
    )


@some.composite
def rows(draw: some.DrawFn, columns: Schema) -> dict[str, object]:
    row: dict[str, object] = {}
    for column in columns.columns:
        kind = str(schema.decode_type(column.type))
        fitting = VALUES.get(kind, some.none())
        value = draw(some.one_of(fitting, fitting, fitting, some.sampled_from(HOSTILE_VALUES)))
        if draw(some.integers(0, 9)):
            row[column.name] = value
    if not draw(some.integers(0, 9)):
        row[draw(some.sampled_from(HOSTILE_NAMES))] = 1
    return row


@given(some.data())
def test_the_made_encoder_and_the_general_way_agree(data: some.DataObject) -> None:
    columns = data.draw(schemas())
    codec = RowCodec(columns)
    for row in data.draw(some.lists(rows(columns), min_size=1, max_size=8)):
        assert result_of(codec.from_user, row) == result_of(codec.encode, row)


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_each_hostile_value_is_taken_or_refused_as_by_the_general_way(kind: str) -> None:
    codec = RowCodec(Schema(1, (Column(1, "v", schema.encode_type(schema.parse_type(kind))),)))
    for value in HOSTILE_VALUES:
        assert result_of(codec.from_user, {"v": value}) == result_of(codec.encode, {"v": value})


def test_a_name_of_a_column_is_never_run() -> None:
    names = [*HOSTILE_NAMES, '"]; import os; os._exit(1); row["', "\n    raise ValueError\n"]
    columns = tuple(Column(at, name, "int64") for at, name in enumerate(names))
    codec = RowCodec(Schema(1, columns))
    row: dict[str, object] = dict.fromkeys(names, 7)
    assert codec.from_user(row) == (7,) * len(names)
    assert codec.to_user(codec.from_user(row)) == row


@pytest.mark.parametrize("count", [1, COLUMNS_MAX, COLUMNS_MAX + 1, 10_000])
def test_a_row_may_have_any_number_of_columns(count: int) -> None:
    codec = RowCodec(Schema(1, tuple(Column(at, f"c{at}", "int64") for at in range(count))))
    row: dict[str, object] = {f"c{at}": at for at in range(count)}
    assert codec.from_user(row) == tuple(range(count))
    assert codec.from_user({}) == (None,) * count


def test_a_mapping_that_is_no_dict_goes_the_general_way() -> None:
    class Row(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            raise AssertionError(name)

    codec = RowCodec(Schema(1, (Column(1, "v", "int64"),)))
    assert codec.from_user(Row(v=1)) == (1,)


def test_a_row_of_many_types_comes_back_as_a_user_gave_it() -> None:
    kinds = {"n": "int64", "s": "string", "t": "timestamp[us]", "d": "date32"}
    columns = tuple(
        Column(at, name, schema.encode_type(schema.parse_type(kind)))
        for at, (name, kind) in enumerate(kinds.items())
    )
    codec = RowCodec(Schema(1, columns))
    row: dict[str, object] = {
        "n": 1,
        "s": "naïve",
        "t": dt.datetime(2024, 1, 1),  # noqa: DTZ001 - the column has no zone
        "d": dt.date(2024, 2, 29),
    }
    assert codec.to_user(codec.from_user(row)) == row
