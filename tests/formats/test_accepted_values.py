"""What a column takes can be written to the log, and is the same when it is read as Arrow.

A value that were taken, and could not be read, would be acknowledged and end each later opening.
"""

# ruff: noqa: DTZ001, DTZ901 (columns without a zone hold moments without one)

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from siltstone.errors import RequestError
from siltstone.formats.rows import UnfitError, converter, from_storage_values, storage_values
from siltstone.formats.schema import encode_column

UNITS = ("s", "ms", "us", "ns")
KINDS: list[pa.DataType] = [
    *(make() for make in (pa.bool_, pa.int8, pa.int16, pa.int32, pa.int64)),
    *(make() for make in (pa.uint8, pa.uint16, pa.uint32, pa.uint64)),
    *(make() for make in (pa.float16, pa.float32, pa.float64)),
    *(make() for make in (pa.string, pa.large_string, pa.binary, pa.large_binary)),
    pa.binary(3), pa.uuid(), pa.json_(pa.string()), pa.date32(), pa.date64(),
    *(pa.timestamp(unit) for unit in UNITS),
    *(pa.timestamp(unit, "America/New_York") for unit in UNITS),
    *(pa.duration(unit) for unit in UNITS),
    pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    pa.decimal128(1, 0), pa.decimal128(18, 18), pa.decimal128(38, 0), pa.decimal128(38, 38),
    pa.decimal128(5, -3), pa.decimal128(38, -5), pa.decimal256(76, 0), pa.decimal256(76, 76),
]  # fmt: skip
ZONES = (None, dt.UTC, ZoneInfo("America/New_York"), dt.timezone(dt.timedelta(hours=14)))
MOMENTS = [
    dt.datetime.min, dt.datetime(1677, 9, 21, 0, 12, 43, 145224), dt.datetime(1969, 12, 31, 23),
    dt.datetime(1677, 9, 21, 0, 12, 43, 145225), dt.datetime(2262, 4, 11, 23, 47, 16, 854775),
    dt.datetime(2262, 4, 11, 23, 47, 16, 854776), dt.datetime(2299, 12, 31),
    dt.datetime(2555, 1, 1), dt.datetime(9998, 12, 31, 23, 59, 59, 999999),
]  # fmt: skip
VALUES: list[Any] = [
    True, np.False_, "", "x", "{}", "[1]", "\ud800", "0" * 32, b"", b"abc", b"x" * 16,
    memoryview(b"abc"),
    uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), dt.date.min, dt.date.max, dt.time(1), dt.time.max,
    dt.time(1, tzinfo=dt.UTC), dt.timedelta.max, dt.timedelta.min, dt.timedelta(microseconds=-1),
    dt.timedelta(days=106_751), dt.timedelta(days=106_752), dt.timedelta(days=-106_752),
    *(sign * (2**bits + more) for sign in (1, -1) for bits in (0, 7, 8, 15, 16, 24, 31, 53, 63, 64)
      for more in (-1, 0, 1)),
    10**37, 10**38, 10**42, 10**75, 10**76, 10**400, np.int8(-128), np.uint64(2**64 - 1),
    0.0, -0.0, 0.5, 65504.0, 65520.0, 3.4028235e38, 3.4028236e38, 1e308, math.inf, math.nan,
    np.float16(1.5), np.float32(0.1), np.float64(0.1),
    *(Decimal(text) for text in ("0", "-0", "1E-38", "1E-76", "0.5", "9", "10", "99999000", "1E42",
                                 "1E+400", "NaN", "Infinity", "9" * 38, "9" * 76, "9" * 77)),
    *(moment.replace(tzinfo=zone) for moment in MOMENTS for zone in ZONES),
    *(np.datetime64(2**62, unit) for unit in UNITS), np.datetime64("NaT"), np.timedelta64("NaT"),
    *(np.timedelta64(2**62, unit) for unit in UNITS), np.datetime64("2020-01-01"),
    pd.NaT, pd.NA, pd.Timestamp.min, pd.Timestamp.max,
    pd.Timestamp("2020-01-01T00:00:00.123456789"),
    pd.Timestamp("2020-01-01T00:00:00.5", tz="Asia/Tokyo"), pd.Timedelta(5, "ns"), pd.Timedelta.max,
    (), [], {}, object(),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_a_column_takes_is_read_again(kind: pa.DataType) -> None:
    taken = []
    for value in VALUES:
        try:
            taken.append(converter(kind)(value))
        except UnfitError:
            continue
    assert taken
    # The log packs each row of plain types; what it cannot pack is Arrow there.
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode([v for v in taken if _is_small(v)]))
    assert repr(packed) == repr([v for v in taken if _is_small(v)])
    column = from_storage_values(taken, kind)
    column.validate(full=True)
    assert column.type == kind
    assert repr(storage_values(column)) == repr(taken)
    for value in taken:
        assert repr(storage_values(from_storage_values([value, None], kind))) == repr([value, None])


def _is_small(value: object) -> bool:
    """Decimals of over 18 digits are no rows of the log."""
    return not isinstance(value, int) or -(2**63) <= value < 2**64


@pytest.mark.parametrize("kind", [k for k in KINDS if not pa.types.is_decimal(k)], ids=str)
def test_no_whole_number_is_beyond_the_log(kind: pa.DataType) -> None:
    for value in VALUES:
        try:
            found = converter(kind)(value)
        except UnfitError:
            continue
        assert _is_small(found)


@pytest.mark.parametrize("kind", KINDS[9:12], ids=str)
def test_a_whole_number_is_the_same_as_a_float_or_refused(kind: pa.DataType) -> None:
    for value in (v for v in VALUES if type(v) is int):
        try:
            found = converter(kind)(value)
        except UnfitError:
            continue
        assert int(found) == value


@pytest.mark.parametrize("unit", UNITS[:3])
def test_digits_that_a_unit_would_cut_are_refused(unit: Any) -> None:
    moment, span = pd.Timestamp("2020-01-01T00:00:00.123456789"), pd.Timedelta(1, "ns")
    for kind, value in ((pa.timestamp(unit), moment), (pa.duration(unit), span)):
        with pytest.raises(UnfitError):
            converter(kind)(value)
        with pytest.raises(UnfitError):
            converter(pa.struct([("a", kind)]))({"a": value})
    assert converter(pa.timestamp("ns"))(moment) == moment.value


@pytest.mark.parametrize(
    "kind",
    [pa.decimal128(5, 9), pa.decimal256(5, 9), pa.list_(pa.decimal128(3, 4))],
    ids=str,
)
def test_a_decimal_has_no_more_digits_behind_the_point_than_digits(kind: pa.DataType) -> None:
    with pytest.raises(RequestError, match="more digits behind the point than digits"):
        encode_column(pa.field("v", kind), is_keyed=True)
