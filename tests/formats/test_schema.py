"""A schema is stored and read back exactly; what a table cannot have is refused by name."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from siltstone.errors import RequestError, SchemaMismatchError
from siltstone.formats import schema as schemas
from siltstone.formats.manifest import Column, Schema
from tests.compat.golden_bytes import golden

UNITS = ("s", "ms", "us", "ns")
SIMPLE = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(),
    pa.binary(), pa.large_binary(), pa.date32(), pa.time32("s"), pa.time32("ms"), pa.time64("us"),
    pa.time64("ns"), *(pa.timestamp(unit) for unit in UNITS),
    *(pa.timestamp(unit, tz) for unit in UNITS for tz in ("UTC", "Europe/Berlin", "+02:00")),
    pa.decimal128(1, 0), pa.decimal128(38, 10), pa.decimal128(5, -2),
]  # fmt: skip
NEW = [
    pa.date64(), *(pa.duration(unit) for unit in UNITS), pa.binary(1), pa.binary(16),
    pa.decimal256(1, 0), pa.decimal256(76, 10), pa.decimal256(5, -2),
]  # fmt: skip
WHOLE = [
    pa.uuid(), pa.json_(pa.string()), pa.fixed_shape_tensor(pa.float32(), [2, 3]),
    pa.fixed_shape_tensor(pa.int8(), [2, 3], dim_names=["a", "b"], permutation=[1, 0]),
]  # fmt: skip
SORTED_MAP = cast("Any", pa.map_)(pa.string(), pa.int8(), keys_sorted=True)
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

ONE_SIZE = [kind for kind in (*SIMPLE, *NEW) if "string" not in str(kind)]
vectors = some.recursive(
    some.sampled_from([kind for kind in ONE_SIZE if kind not in (pa.binary(), pa.large_binary())]),
    lambda inner: some.tuples(inner, some.integers(1, 8)).map(lambda pair: pa.list_(*pair)),
    max_leaves=3,
)
EVERY_2 = [
    *NEW,
    *WHOLE,
    pa.large_list(pa.string()),
    pa.map_(pa.string(), pa.list_(pa.duration("ms"))),
    pa.struct([pa.field("duration", pa.date64(), nullable=False)]),
]
SCHEMA_2 = Schema(
    1,
    tuple(
        Column(at + 1, f"c {at}", schemas.encode_type(kind), nullable=True)
        for at, kind in enumerate(EVERY_2)
    ),
)
types = some.recursive(
    some.sampled_from([*SIMPLE, *NEW]) | vectors,
    lambda inner: some.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        some.tuples(inner, inner).map(lambda pair: pa.map_(*pair)),
        some.lists(some.tuples(inner, some.booleans()), min_size=1, max_size=3).map(
            lambda fields: pa.struct(
                [pa.field(f"f{n}", k, nullable=b) for n, (k, b) in enumerate(fields)]
            )
        ),
    ),
    max_leaves=5,
)


@given(types | some.sampled_from(WHOLE))
def test_a_type_survives_its_json(kind: pa.DataType) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(schemas.encode_type(kind)))
    assert schemas.decode_type(stored) == kind
    column = msgspec.json.decode(
        msgspec.json.encode(Column(1, "x", schemas.encode_type(kind))), type=Column
    )
    assert schemas.decode_type(column.type) == kind
    assert hash(column) == hash(Column(1, "x", schemas.encode_type(kind)))


NOTED = Schema(
    id=3,
    columns=(
        Column(1, "id", "int64", nullable=False, metadata=(("lancedb:description", "ß"),)),
        Column(2, "v", "string"),
    ),
    key=(1,),
    metadata=(("owner", "us"), ("source", "")),
    secret=(1 << 64) - 1,
)


@pytest.mark.parametrize(
    ("name", "value"), [("schema", SCHEMA), ("more-types", SCHEMA_2), ("metadata", NOTED)]
)
def test_the_json_is_what_was_committed_and_is_read(name: str, value: Schema) -> None:
    data = msgspec.json.format(msgspec.json.encode(value)) + b"\n"
    assert data == golden(f"schema/{name}.json", data)
    assert msgspec.json.decode(golden(f"schema/{name}.json", data), type=Schema) == value


def test_the_stored_schema_of_more_types_is_the_arrow_schema_that_its_user_gave() -> None:
    assert schemas.to_arrow(SCHEMA_2).types == EVERY_2


def test_a_stored_schema_is_the_arrow_schema_that_its_user_gave() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(SCHEMA), type=Schema)
    assert schemas.to_arrow(stored).types == [pa.int64(), pa.string(), *EVERY]
    assert schemas.key_names(stored) == ("c 1", "c 0")


def test_a_user_may_call_a_type_by_its_usual_names() -> None:
    for text, kind in {
        "int": pa.int64(), "float": pa.float64(), "double": pa.float64(), "str": pa.string(),
        "text": pa.string(), "bytes": pa.binary(), "date": pa.date32(), "time": pa.time64("us"),
        "timestamp": pa.timestamp("us"), "boolean": pa.bool_(), "float32": pa.float32(),
        "decimal(10, 2)": pa.decimal128(10, 2), "vector(float32, 3)": pa.list_(pa.float32(), 3),
        "uuid": pa.uuid(), "arrow.json": pa.json_(), "binary(4)": pa.binary(4),
        "fixed_size_binary[4]": pa.binary(4), "duration": pa.duration("us"),
        "decimal256(50, 2)": pa.decimal256(50, 2),
    }.items():  # fmt: skip
        assert schemas.parse_type(text) == kind


@pytest.mark.parametrize("text", ["", "Int64", "decimal(0, 0)", "decimal(39, 0)", "timestamp[m]"])
def test_an_unknown_type_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="unknown type"):
        schemas.parse_type(text)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (pa.null(), "it holds nothing"),
        (pa.string_view(), "use string"),
        (pa.list_view(pa.int8()), "use a list"),
        (pa.run_end_encoded(pa.int32(), pa.int8()), "use the type of its values"),
        (pa.month_day_nano_interval(), "use duration"),
        (pa.dense_union([pa.field("a", pa.int8())]), "use a struct"),
        (pa.decimal32(5, 2), "use decimal128"),
        (pa.decimal64(10, 2), "use decimal128"),
        (pa.struct([]), "different names"),
        (pa.struct([("x", pa.int8()), ("x", pa.int8())]), "different names"),
        (pa.dictionary(pa.int32(), pa.string()), "use the type of its values"),
        (pa.list_(pa.null()), "it holds nothing"),
        (pa.list_(pa.int8(), 0), "at least one value"),
        (pa.list_(pa.string(), 2), "must have one size each"),
        (pa.list_(pa.list_(pa.int8()), 2), "must have one size each"),
        (pa.list_(pa.list_(pa.binary(), 2), 2), "must have one size each"),
        (pa.list_(pa.struct([("x", pa.int8())]), 2), "must have one size each"),
        (pa.binary(0), "at least one byte"),
        (SORTED_MAP, "keys_sorted"),
        (pa.list_(pa.uuid()), "an extension type must be that of a whole column"),
        (pa.struct([("x", pa.json_())]), "an extension type must be that of a whole column"),
        (pa.fixed_shape_tensor(pa.int8(), []), "at least one dimension"),
        (pa.bool8(), "'arrow.bool8' is unknown here, and would lose its name; use the type"),
        (pa.timestamp("us", "No/Where"), "unknown time zone"),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_no_column_may_have_is_refused_with_its_column_and_why(
    kind: pa.DataType, why: str
) -> None:
    table_schema = pa.schema([("id", pa.int64()), ("the column", kind)])
    with pytest.raises(RequestError) as refused:
        schemas.new_schema(table_schema, [], schema_id=1)
    assert "'the column'" in str(refused.value)
    assert why in str(refused.value)


def test_json_is_for_plain_tables() -> None:
    table_schema = pa.schema([("id", pa.int64()), ("x", pa.json_())])
    schemas.new_schema(table_schema, [], schema_id=1)
    with pytest.raises(RequestError, match="'x' of a table with a primary key cannot have type"):
        schemas.new_schema(table_schema, ["id"], schema_id=1)


def test_key_columns_are_never_null_and_ids_count_from_1() -> None:
    table_schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float32())])
    made = schemas.new_schema(table_schema, ["b", "a"], schema_id=1)
    assert [(c.id, c.nullable) for c in made.columns] == [(1, False), (2, False), (3, True)]
    assert made.key == (2, 1)
    with pytest.raises(RequestError, match="'c' of type float cannot be a key"):
        schemas.new_schema(table_schema, ["c"], schema_id=1)
    with pytest.raises(SchemaMismatchError, match="the key is no column 'd'"):
        schemas.new_schema(table_schema, ["d"], schema_id=1)


def test_history_calls_a_column_by_its_id() -> None:
    made = schemas.new_schema(
        pa.schema([("a", pa.int64()), ("b", pa.string())]), ["a"], schema_id=1
    )
    assert schemas.history_schema(made).names == ["c1", "c2", "_seq", "_op"]
    assert all(field.nullable for field in list(schemas.history_schema(made))[:2])
