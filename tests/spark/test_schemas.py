"""Each column has one type in Spark; what has none is refused by name, and no value changes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import types as kinds

from siltstone import SchemaMismatchError
from siltstone.spark.context.schemas import (
    arrow_schema,
    as_schema,
    to_spark,
    to_store,
    wanted_columns,
)

pytestmark = pytest.mark.usefixtures("spark")  # Spark parses its own names of types

EVERY_TYPE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("flag", pa.bool_()),
        pa.field("u8", pa.uint8()),
        pa.field("u32", pa.uint32()),
        pa.field("u64", pa.uint64()),
        pa.field("f16", pa.float16()),
        pa.field("f32", pa.float32()),
        pa.field("text", pa.large_string()),
        pa.field("bytes", pa.large_binary()),
        pa.field("day", pa.date32()),
        pa.field("ms", pa.time32("ms")),
        pa.field("ns", pa.time64("ns")),
        pa.field("local_s", pa.timestamp("s")),
        pa.field("local_ns", pa.timestamp("ns")),
        pa.field("zone_ms", pa.timestamp("ms", "Europe/Berlin")),
        pa.field("money", pa.decimal128(10, 2)),
        pa.field("words", pa.list_(pa.string())),
        pa.field("vector", pa.list_(pa.float32(), 2)),
        pa.field("point", pa.struct([("x", pa.uint8()), ("y", pa.list_(pa.int32()))])),
        pa.field("uid", pa.uuid()),
        pa.field("code", pa.binary(3)),
        pa.field("many", pa.large_list(pa.large_string())),
        pa.field("pairs", pa.map_(pa.large_string(), pa.decimal256(9, 2))),
        pa.field("span_s", pa.duration("s")),
        pa.field("span_ns", pa.duration("ns")),
        pa.field("day_ms", pa.date64()),
        pa.field("sum", pa.decimal256(38, 2)),
        pa.field("square", pa.fixed_shape_tensor(pa.float32(), [2, 2])),
        pa.field("doc", pa.json_()),
        pa.field("inside", pa.struct([("code", pa.binary(2)), ("day", pa.date64())])),
    ]
)
ROW = {
    "id": 1,
    "flag": True,
    "u8": 255,
    "u32": 2**32 - 1,
    "u64": 2**64 - 1,
    "f16": 1.5,
    "f32": 0.5,
    "text": "x",
    "bytes": b"\0",
    "day": dt.date(2020, 2, 29),
    "ms": dt.time(1, 2, 3, 4000),
    "ns": dt.time(1, 2, 3, 4),
    "local_s": dt.datetime(2020, 2, 29, 1),  # noqa: DTZ001
    "local_ns": dt.datetime(2020, 2, 29, 1, 2, 3, 4),  # noqa: DTZ001
    "zone_ms": dt.datetime(2020, 2, 29, 1, tzinfo=dt.UTC),
    "money": Decimal("1.25"),
    "words": ["a", None],
    "vector": [1.0, 2.0],
    "point": {"x": 255, "y": [1, None]},
    "uid": UUID(int=7).bytes,
    "code": b"\0\xff\0",
    "many": ["", None],
    "pairs": [("b", Decimal("-0.01")), ("a", None)],
    "span_s": dt.timedelta(days=-100_000),
    "span_ns": dt.timedelta(microseconds=1),
    "day_ms": dt.date(1, 1, 1),
    "sum": Decimal("123456789012345678901234567890.25"),
    "square": [0.0, 1.0, -2.0, 3.5],
    "doc": '{"a":1}',
    "inside": {"code": b"ab", "day": dt.date(9999, 12, 31)},
}
NOTHING = {name: 1 if name == "id" else None for name in EVERY_TYPE.names}


def batch_of(*rows: dict[str, object]) -> pa.RecordBatch:
    plain = pa.schema(
        [field.with_type(getattr(field.type, "storage_type", field.type)) for field in EVERY_TYPE]
    )
    given = pa.RecordBatch.from_pylist(list(rows), plain)
    columns = [
        pa.ExtensionArray.from_storage(field.type, column)
        if isinstance(field.type, pa.BaseExtensionType)
        else column
        for field, column in zip(EVERY_TYPE, given.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVERY_TYPE)


def test_every_type_of_a_store_has_one_in_spark() -> None:
    found = to_spark(EVERY_TYPE)
    assert not found["id"].nullable
    assert [field.dataType.simpleString() for field in found] == [
        "bigint",
        "boolean",
        "smallint",
        "bigint",
        "decimal(20,0)",
        "float",
        "float",
        "string",
        "binary",
        "date",
        "time(6)",
        "time(6)",
        "timestamp_ntz",
        "timestamp_ntz",
        "timestamp",
        "decimal(10,2)",
        "array<string>",
        "array<float>",
        "struct<x:smallint,y:array<int>>",
        "binary",
        "binary",
        "array<string>",
        "map<string,decimal(9,2)>",
        "interval day to second",
        "interval day to second",
        "date",
        "decimal(38,2)",
        "array<float>",
        "string",
        "struct<code:binary,day:date>",
    ]


def test_rows_go_to_spark_and_back_unchanged() -> None:
    rows = batch_of(ROW, NOTHING, ROW).slice(1)
    shown = as_schema(rows, arrow_schema(to_spark(EVERY_TYPE)))
    assert shown.schema == arrow_schema(to_spark(EVERY_TYPE))
    assert as_schema(shown, EVERY_TYPE).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    ("name", "value"),
    [("local_ns", 1_500), ("ns", 1_500), ("local_s", 10**15), ("span_ns", 1), ("span_s", 10**15)],
)
def test_a_value_that_spark_cannot_hold_is_an_error(name: str, value: int) -> None:
    kind = EVERY_TYPE.field(name).type
    rows = pa.RecordBatch.from_arrays([pa.array([value], pa.int64()).cast(kind)], names=[name])
    with pytest.raises(SchemaMismatchError, match=f"column '{name}': a value of "):
        as_schema(rows, arrow_schema(to_spark(rows.schema)))


def test_a_type_that_spark_lacks_is_refused_by_name() -> None:
    wide = pa.decimal256(39, 2)
    for kind in (
        *(pa.decimal128(5, -2), pa.decimal128(2, 5), pa.list_(pa.decimal128(5, -2))),
        *(wide, pa.map_(pa.string(), wide), pa.struct([("x", pa.large_list(wide))])),
        pa.map_(pa.struct([("x", pa.map_(pa.int32(), pa.int32()))]), pa.int32()),
    ):
        with pytest.raises(SchemaMismatchError, match=r"'odd.*' has type .*`columns`"):
            to_spark(pa.schema([("odd", kind)]))


def test_a_schema_of_the_callers_own_picks_columns() -> None:
    own = kinds.StructType([kinds.StructField("text", kinds.StringType(), nullable=False)])
    assert wanted_columns(own, EVERY_TYPE, "t") == ["text"]
    with pytest.raises(SchemaMismatchError, match="'u8' of 't' is smallint, not int"):
        wanted_columns(kinds.StructType().add("u8", "integer"), EVERY_TYPE, "t")
    with pytest.raises(SchemaMismatchError, match="'t' has no column 'other'"):
        wanted_columns(kinds.StructType().add("other", "integer"), EVERY_TYPE, "t")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("id", "tinyint"),
        ("id", "int"),
        ("id", "bigint"),
        ("u8", "tinyint"),
        ("u64", "bigint"),
        ("f32", "smallint"),
        ("money", "smallint"),
        ("money", "decimal(8,1)"),
        ("vector", "array<float>"),
        ("words", "void"),
        ("uid", "binary"),
        ("code", "binary"),
        ("many", "array<string>"),
        ("pairs", "map<string,smallint>"),
        ("span_s", "interval day to second"),
        ("span_s", "interval hour to minute"),
        ("ms", "time(0)"),
        ("square", "array<float>"),
        ("day_ms", "date"),
    ],
)
def test_a_column_takes_types_that_lose_nothing(name: str, kind: str) -> None:
    given = kinds.StructType.fromDDL(f"{name} {kind}")
    assert to_store(given, EVERY_TYPE, "t") == pa.schema([EVERY_TYPE.field(name)])


@pytest.mark.parametrize(
    ("name", "kind", "stored"),
    [
        ("u8", "int", "uint8"),
        ("f32", "double", "float"),
        ("f32", "int", "float"),
        ("id", "decimal(20,0)", "int64"),
        ("money", "decimal(10,3)", "decimal128"),
        ("money", "decimal(11,2)", "decimal128"),
        ("day", "timestamp", "date32"),
        ("local_s", "timestamp", "timestamp"),
        ("text", "binary", "large_string"),
        ("words", "array<int>", "list"),
        ("point", "struct<y:array<int>,x:smallint>", "struct"),
    ],
)
def test_a_column_that_does_not_fit_is_named_with_both_types(
    name: str, kind: str, stored: str
) -> None:
    given = kinds.StructType.fromDDL(f"{name} {kind}")
    with pytest.raises(SchemaMismatchError) as caught:
        to_store(given, EVERY_TYPE, "t")
    message = str(caught.value)
    assert f"column '{name}' of 't' has type {stored}" in message
    assert f"the rows have {given[name].dataType.simpleString()}; cast it" in message


def test_an_unknown_or_doubled_column_is_named() -> None:
    with pytest.raises(SchemaMismatchError, match="'t' has no column 'other'"):
        to_store(kinds.StructType.fromDDL("other int"), EVERY_TYPE, "t")
    doubled = kinds.StructType().add("id", "long").add("id", "long")
    with pytest.raises(SchemaMismatchError, match="have column 'id' twice"):
        to_store(doubled, EVERY_TYPE, "t")


def test_a_value_out_of_range_is_an_error() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([300], pa.int16())], names=["u8"])
    with pytest.raises(SchemaMismatchError, match="column 'u8': a value of int16 does not fit"):
        as_schema(rows, pa.schema([EVERY_TYPE.field("u8")]))
