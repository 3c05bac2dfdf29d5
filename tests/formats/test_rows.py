"""A value comes back as it went in: as a user's, in the log's form, and as Arrow."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from siltstone.errors import SchemaMismatchError
from siltstone.formats import schema
from siltstone.formats.conversion import conform
from siltstone.formats.conversion.row_codec import RowCodec
from siltstone.formats.manifest import Column, Schema
from tests.compat.golden_bytes import golden

# ruff: noqa: DTZ001 (columns without a zone hold moments without one)


def integers(bits: int, *, signed: bool) -> some.SearchStrategy:
    low = -(1 << bits - 1) if signed else 0
    return some.integers(low, low + (1 << bits) - 1)


def moments(tick: dt.timedelta, zone: dt.tzinfo | None = None) -> some.SearchStrategy:
    start = dt.datetime(1700, 1, 1, tzinfo=zone)
    return some.integers(0, 5_000_000_000).map(lambda n: start + n * tick)


def scaled(precision: int, scale: int) -> some.SearchStrategy:
    return some.integers(-(10**precision) + 1, 10**precision - 1).map(
        lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
    )


VALUES: dict[str, some.SearchStrategy] = {
    **{f"int{bits}": integers(bits, signed=True) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": integers(bits, signed=False) for bits in (8, 16, 32, 64)},
    "bool": some.booleans(),
    "float16": some.floats(width=16), "float32": some.floats(width=32), "float64": some.floats(),
    "string": some.text(), "large_string": some.text(),
    "binary": some.binary(), "large_binary": some.binary(),
    "date32": some.dates(),
    "timestamp[s]": moments(dt.timedelta(seconds=1)),
    "timestamp[ms]": moments(dt.timedelta(milliseconds=7)),
    "timestamp[us]": some.datetimes(),
    "timestamp[us, tz=UTC]": some.datetimes(timezones=some.just(dt.UTC)),
    "time32[ms]": some.integers(0, 86_399_999).map(
        lambda n: (dt.datetime(2000, 1, 1) + dt.timedelta(milliseconds=n)).time()
    ),
    "time64[us]": some.times(),
    "decimal128(18, 3)": scaled(18, 3),
    "decimal128(38, 0)": scaled(38, 0),
    "decimal128(38, 38)": scaled(38, 38),
}  # fmt: skip


def codec_of(kind: str) -> RowCodec:
    return RowCodec(Schema(1, (Column(1, "v", schema.encode_type(schema.parse_type(kind))),)))


def same(left: object, right: object) -> bool:
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    return left == right and type(left) is type(right)


@pytest.mark.parametrize("kind", VALUES)
def test_user_storage_arrow_storage_user_is_a_circle(kind: str) -> None:
    codec = codec_of(kind)

    @given(VALUES[kind] | some.none())
    def circle(value: object) -> None:
        stored = codec.from_user({"v": value})
        batch = codec.to_batch([stored])
        again = codec.rows_of(batch)[0]
        assert same(again[0], stored[0])
        shown = codec.to_user(again)["v"]
        assert same(shown, value)
        (arrow,) = batch.column("v").to_pylist()
        assert same(arrow, value)
        if codec.is_packable:
            assert same(msgspec.msgpack.decode(msgspec.msgpack.encode(stored))[0], stored[0])

    circle()


@pytest.mark.parametrize(
    ("kind", "given_value", "meant"),
    [
        ("int8", np.int64(5), 5), ("float64", np.float32(0.5), 0.5), ("float64", 3, 3.0),
        ("float32", 0.1, struct.unpack("f", struct.pack("f", 0.1))[0]), ("bool", np.bool_(1), True),
        ("string", np.str_("x"), "x"), ("binary", bytearray(b"x"), b"x"),
        ("binary", memoryview(b"x"), b"x"), ("decimal128(10, 2)", 3, Decimal("3.00")),
        ("decimal128(10, 2)", Decimal("1.5"), Decimal("1.50")),
        ("timestamp[us]", np.datetime64("2020-01-01T00:00:01"), dt.datetime(2020, 1, 1, 0, 0, 1)),
        ("timestamp[us, tz=UTC]",
         dt.datetime(2020, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
         dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("vector(float32, 2)", [1, 2], [1.0, 2.0]),
    ],
)  # fmt: skip
def test_a_value_of_a_kindred_type_is_taken_for_what_it_means(
    kind: str, given_value: object, meant: object
) -> None:
    codec = codec_of(kind)
    assert codec.to_user(codec.from_user({"v": given_value})) == {"v": meant}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 128), ("int8", -129), ("uint8", -1), ("int64", 1 << 63), ("uint64", 1 << 64),
        ("int64", 1.0), ("int64", True), ("int64", "1"), ("int64", Decimal(1)),
        ("float64", "1"), ("float64", True), ("float64", 10**400), ("float32", 1e39),
        ("float16", 70_000.0), ("bool", 1), ("bool", "true"), ("string", b"x"), ("string", 1),
        ("string", "\ud800"), ("binary", "x"), ("date32", dt.datetime(2020, 1, 1)),
        ("date32", "2020-01-01"), ("timestamp[s]", dt.datetime(2020, 1, 1, microsecond=1)),
        ("timestamp[us]", "2020-01-01"), ("timestamp[us]", 5), ("time64[us]", 5),
        ("time32[s]", dt.time(1, 2, 3, 4)), ("timestamp[us]", np.datetime64("NaT")),
        ("time64[us]", np.datetime64("2020-01-01T12:00:00.000001")),
        ("time32[s]", np.datetime64("2020-01-01T12:00:00")),
        ("decimal128(5, 2)", Decimal("1.234")),
        ("decimal128(5, 2)", Decimal(1000)), ("decimal128(5, 2)", Decimal("nan")),
        ("decimal128(5, 2)", Decimal("inf")), ("decimal128(5, 2)", 1.5),
        ("vector(float32, 2)", [1.0]), ("vector(float32, 2)", 1.0), ("vector(float32, 2)", "ab"),
    ],
)  # fmt: skip
def test_a_value_that_would_change_is_refused(kind: str, value: object) -> None:
    with pytest.raises(SchemaMismatchError, match="column 'v' is "):
        codec_of(kind).from_user({"v": value})


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int8", pa.array([128])), ("int64", pa.array([1.0])), ("int64", pa.array(["1"])),
        ("int64", pa.array([True])), ("uint8", pa.array([-1])), ("float64", pa.array([2**63 - 1])),
        ("string", pa.array([1])), ("string", pa.array([b"x"])), ("date32", pa.array(["2020"])),
        ("timestamp[s]", pa.array([1], pa.timestamp("us"))),
        ("decimal128(5, 2)", pa.array([Decimal("1.234")])), ("bool", pa.array([1])),
    ],
    ids=str,
)  # fmt: skip
def test_an_arrow_column_that_would_change_is_refused(kind: str, column: pa.Array) -> None:
    made = Schema(1, (Column(1, "v", schema.encode_type(schema.parse_type(kind))),))
    with pytest.raises(SchemaMismatchError, match="column 'v' is "):
        conform.conform(pa.record_batch({"v": column}), made, schema.to_arrow(made))


NARROW = pa.struct([("x", pa.float32())])
STRUCT = pa.struct([pa.field("a", pa.int8(), nullable=False), pa.field("t", pa.time32("s"))])
BAD_NESTED = [
    (STRUCT, {"a": None}), (STRUCT, {}), (STRUCT, {"a": 1, "zz": 2}), (STRUCT, {"a": 1.5}),
    (STRUCT, {"a": "1"}), (STRUCT, {"a": 300}), (STRUCT, {"a": 1, "t": dt.time(1, 2, 3, 4)}),
    (STRUCT, [("a", 1)]), (pa.list_(STRUCT), [{"a": None}]), (pa.list_(pa.int64()), [1.5]),
    (pa.list_(pa.int64()), "12"), (pa.list_(pa.int64()), {1, 2}), (pa.list_(pa.int64()), 5),
    (pa.list_(pa.float32(), 2), [1e300, 0.0]), (pa.list_(pa.float32(), 2), [1.0] * 3),
]  # fmt: skip


def nested(kind: pa.DataType) -> Schema:
    return Schema(1, (Column(1, "v", schema.encode_type(kind)),))


@pytest.mark.parametrize(("kind", "value"), BAD_NESTED, ids=str)
def test_a_nested_value_that_would_change_or_hide_a_null_is_refused(
    kind: pa.DataType, value: object
) -> None:
    with pytest.raises(SchemaMismatchError, match="column 'v' is "):
        RowCodec(nested(kind)).from_user({"v": value})


def test_a_nested_value_is_rounded_and_completed_as_lance_would() -> None:
    codec = RowCodec(nested(pa.list_(pa.struct([("x", pa.float32()), ("y", pa.int8())]))))
    rounded = struct.unpack("f", struct.pack("f", 0.1))[0]
    assert codec.from_user({"v": [{"x": 0.1}, None]}) == ([{"x": rounded, "y": None}, None],)
    vector = RowCodec(nested(pa.list_(pa.float32(), 2)))
    assert vector.from_user({"v": np.array([1, 2], np.int8)}) == ([1.0, 2.0],)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (STRUCT, pa.array([{"a": None}], STRUCT)),
        (pa.list_(STRUCT), pa.array([[{"a": 1}, {"a": None}]], pa.list_(STRUCT))),
        (STRUCT, pa.array([{"a": None}])), (STRUCT, pa.array([{"a": 1, "zz": 2}])),
        (STRUCT, pa.array([{"a": "1"}])), (STRUCT, pa.array([1])),
        (pa.list_(pa.int64()), pa.array([["1"]])), (pa.list_(pa.int64()), pa.array([[1.0]])),
        (pa.list_(pa.int64()), pa.array([{"a": 1}])),
        (pa.float32(), pa.array([1e300])), (pa.float16(), pa.array([1e6, None])),
        (pa.float16(), pa.array([70_000])), (pa.float32(), pa.array([1e300]).dictionary_encode()),
        (pa.list_(pa.float32()), pa.array([None, [1.0], [math.inf, -1e300]])),
        (pa.list_(pa.float32(), 2), pa.array([[1.0, 2.0], None, [1e300, 0.0]])),
        (pa.list_(pa.list_(pa.float32())), pa.array([[[0.5], [1e300]]])),
        (NARROW, pa.array([{"x": 1e300}])), (pa.list_(NARROW), pa.array([[None, {"x": -1e300}]])),
    ],
    ids=str,
)  # fmt: skip
def test_an_arrow_column_that_would_lose_or_hide_something_is_refused(
    kind: pa.DataType, column: pa.Array
) -> None:
    made = nested(kind)
    with pytest.raises(SchemaMismatchError, match="'v'"):
        conform.conform(pa.record_batch({"v": column}), made, schema.to_arrow(made))


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (pa.float32(), pa.array([math.inf, 0.1, None])),
        (pa.list_(pa.float32()), pa.array([None, [math.inf, None], [], [-math.inf, 0.1]])),
        (pa.list_(pa.float32(), 2), pa.array([None, [math.inf, 0.1]], pa.list_(pa.float64(), 2))),
        (NARROW, pa.array([None, {"x": math.inf}, {"x": None}])),
        (pa.list_(NARROW), pa.array([[{"x": -math.inf}, None], None]).slice(0, 1)),
    ],
    ids=str,
)  # fmt: skip
def test_what_was_infinite_stays_so_in_a_narrower_column(
    kind: pa.DataType, column: pa.Array
) -> None:
    made = nested(kind)
    found = conform.conform(pa.record_batch({"v": column}), made, schema.to_arrow(made))["v"]
    assert found.to_pylist() == column.cast(kind).to_pylist()


def test_a_number_too_large_in_a_null_part_or_beside_a_slice_is_not_seen() -> None:
    made, column = nested(pa.list_(pa.float32())), pa.array([[1e300], [1.0]]).slice(1)
    found = conform.conform(pa.record_batch({"v": column}), made, schema.to_arrow(made))["v"]
    assert found.to_pylist() == [[1.0]]


def test_a_null_struct_may_have_a_field_that_is_never_null() -> None:
    made, column = nested(STRUCT), pa.array([None, {"a": 1, "t": None}], STRUCT)
    assert (
        conform.conform(pa.record_batch({"v": column}), made, schema.to_arrow(made))["v"] == column
    )


def test_malformed_arrow_is_refused_before_it_is_logged() -> None:
    raw = pa.array([b"\xff"])
    text = pa.Array.from_buffers(pa.string(), 1, raw.buffers())
    made = Schema(1, (Column(1, "v", "string"),))
    with pytest.raises(SchemaMismatchError, match="'v' is malformed"):
        conform.conform(pa.record_batch({"v": text}), made, schema.to_arrow(made))


def test_columns_are_found_by_name_and_missing_ones_are_null() -> None:
    made = Schema(1, (Column(1, "a", "int64"), Column(2, "b", "string"), Column(3, "c", "float32")))
    given_batch = pa.record_batch({"c": pa.array([1], pa.int8()), "a": pa.array([5], pa.int32())})
    found = conform.conform(given_batch, made, schema.to_arrow(made))
    assert found.schema == schema.to_arrow(made)
    assert found.to_pylist() == [{"a": 5, "b": None, "c": 1.0}]


GOLDEN_COLUMNS = {
    "int64": -1, "uint64": (1 << 64) - 1, "bool": True, "float64": -0.0, "float32": 0.1,
    "string": "é\0", "binary": b"\0\xff", "date32": dt.date(1969, 12, 31),
    "timestamp[us, tz=UTC]": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    "timestamp[s]": dt.datetime(1969, 12, 31), "time64[us]": dt.time(1, 2, 3, 4),
    "decimal128(18, 3)": Decimal("-123.456"), "large_string": None,
}  # fmt: skip


def golden_codec() -> RowCodec:
    columns = [
        Column(at, f"c{at}", schema.encode_type(schema.parse_type(kind)))
        for at, kind in enumerate(GOLDEN_COLUMNS)
    ]
    return RowCodec(Schema(1, tuple(columns)))


def test_a_row_is_packed_in_the_log_as_it_was_committed() -> None:
    codec = golden_codec()
    given_row = {f"c{at}": value for at, value in enumerate(GOLDEN_COLUMNS.values())}
    stored = codec.from_user(given_row)
    data = msgspec.msgpack.encode(stored)
    assert data == golden("group/rows.msgpack", data)
    read = tuple(msgspec.msgpack.decode(golden("group/rows.msgpack", data)))
    assert codec.to_user(read) == codec.to_user(stored)
    shown = codec.to_user(read)
    assert {k: v for k, v in shown.items() if k != "c4"} == {
        k: v for k, v in given_row.items() if k != "c4"
    }
