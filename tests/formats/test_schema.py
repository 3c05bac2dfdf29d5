"""A schema is stored and read back exactly; what a table cannot have is refused by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from siltstone.errors import RequestError, SchemaMismatchError
from siltstone.formats import schema as schemas
from siltstone.formats.manifest import Column, Schema

GOLDEN = Path(__file__).parents[1] / "compat" / "schema" / "v1.json"

UNITS = ("s", "ms", "us", "ns")
SIMPLE = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(),
    pa.binary(), pa.large_binary(), pa.date32(), pa.time32("s"), pa.time32("ms"), pa.time64("us"),
    pa.time64("ns"), *(pa.timestamp(unit) for unit in UNITS),
    *(pa.timestamp(unit, tz) for unit in UNITS for tz in ("UTC", "Europe/Berlin", "+02:00")),
    pa.decimal128(1, 0), pa.decimal128(38, 10), pa.decimal128(5, -2),
]  # fmt: skip
EVERY = [
    *SIMPLE,
    pa.list_(pa.int64()),
    pa.list_(pa.float32(), 3),
    pa.struct([pa.field("a", pa.int8(), nullable=False), pa.field("é", pa.list_(pa.string()))]),
]
SCHEMA = Schema(
    3,
    tuple(
        Column(at + 1, f"c {at}", schemas.encode_type(kind), nullable=at > 1)
        for at, kind in enumerate([pa.int64(), pa.string(), *EVERY])
    ),
    (2, 1),
)

types = some.recursive(
    some.sampled_from(SIMPLE),
    lambda inner: some.one_of(
        inner.map(pa.list_),
        some.tuples(inner, some.integers(1, 8)).map(lambda pair: pa.list_(*pair)),
        some.lists(some.tuples(inner, some.booleans()), min_size=1, max_size=3).map(
            lambda fields: pa.struct(
                [pa.field(f"f{n}", k, nullable=b) for n, (k, b) in enumerate(fields)]
            )
        ),
    ),
    max_leaves=5,
)


@given(types)
def test_a_type_survives_its_json(kind: pa.DataType) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(schemas.encode_type(kind)))
    assert schemas.decode_type(stored) == kind
    column = msgspec.json.decode(
        msgspec.json.encode(Column(1, "x", schemas.encode_type(kind))), type=Column
    )
    assert schemas.decode_type(column.type) == kind
    assert hash(column) == hash(Column(1, "x", schemas.encode_type(kind)))


def test_the_json_of_format_1_is_read_and_written_for_ever() -> None:
    assert msgspec.json.format(msgspec.json.encode(SCHEMA)) + b"\n" == GOLDEN.read_bytes()
    assert msgspec.json.decode(GOLDEN.read_bytes(), type=Schema) == SCHEMA


def test_the_golden_schema_is_the_arrow_schema_that_its_user_gave() -> None:
    stored = msgspec.json.decode(GOLDEN.read_bytes(), type=Schema)
    assert schemas.to_arrow(stored).types == [pa.int64(), pa.string(), *EVERY]
    assert schemas.key_names(stored) == ("c 1", "c 0")


def test_a_user_may_call_a_type_by_its_usual_names() -> None:
    for text, kind in {
        "int": pa.int64(), "float": pa.float64(), "double": pa.float64(), "str": pa.string(),
        "text": pa.string(), "bytes": pa.binary(), "date": pa.date32(), "time": pa.time64("us"),
        "timestamp": pa.timestamp("us"), "boolean": pa.bool_(), "float32": pa.float32(),
        "decimal(10, 2)": pa.decimal128(10, 2), "vector(float32, 3)": pa.list_(pa.float32(), 3),
    }.items():  # fmt: skip
        assert schemas.parse_type(text) == kind


@pytest.mark.parametrize("text", ["", "Int64", "decimal(0, 0)", "decimal(39, 0)", "timestamp[m]"])
def test_an_unknown_type_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="unknown type"):
        schemas.parse_type(text)


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(), pa.duration("s"), pa.date64(), pa.binary(4), pa.string_view(), pa.struct([]),
        pa.large_list(pa.int8()), pa.decimal256(50, 2), pa.map_(pa.string(), pa.int8()),
        pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.null()), pa.list_(pa.int8(), 0),
        pa.timestamp("us", "No/Where"), pa.struct([("x", pa.int8()), ("x", pa.int8())]),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_no_column_may_have_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(RequestError):
        schemas.encode_type(kind)


def test_key_columns_are_never_null_and_ids_count_from_1() -> None:
    table_schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float32())])
    made = schemas.new_schema(table_schema, ["b", "a"], schema_id=1)
    assert [(c.id, c.nullable) for c in made.columns] == [(1, False), (2, False), (3, True)]
    assert made.key == (2, 1)
    with pytest.raises(RequestError, match="'c' of type float cannot be a key"):
        schemas.new_schema(table_schema, ["c"], schema_id=1)
    with pytest.raises(SchemaMismatchError, match="'d' is not one of"):
        schemas.new_schema(table_schema, ["d"], schema_id=1)


def test_history_calls_a_column_by_its_id() -> None:
    made = schemas.new_schema(
        pa.schema([("a", pa.int64()), ("b", pa.string())]), ["a"], schema_id=1
    )
    assert schemas.history_schema(made).names == ["c1", "c2", "_seq", "_op"]
    assert all(field.nullable for field in list(schemas.history_schema(made))[:2])
