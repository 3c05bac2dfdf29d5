"""Literals of filters: the exact meaning of a constant compared with a column of a type.

Whole numbers, decimals, dates, times and timestamps are *grids*: a value is `n * step` for an
integer n between two bounds. A literal is an exact position on the grid's line, so arithmetic
decides a comparison with a value that the column cannot hold, never a cast that rounds or
overflows:

    column int8      x > 1000            false (null for null)
    column int8      x < 2.5             x <= 2
    column date      d < '2020-01-01 12:00'    d <= 2020-01-01

A timestamp literal without an offset is UTC if the column has a time zone.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast
from typing import Literal as Choice

import msgspec
import pyarrow as pa

from siltstone.errors import RequestError

Kind = Choice["null", "bool", "integer", "decimal", "float", "string", "bytes", "moment", "time"]
Operator = Choice["=", "!=", "<", "<=", ">", ">="]

NUMBER_KINDS = ("integer", "decimal", "float")
DAY_SECONDS = 86_400
# Beyond these powers of ten no column type holds a value, and the exact fraction would be huge.
_EXPONENT_MAX = 400
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MOMENT = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{2})(?::(\d{2})(\.\d{1,12})?)?\s*(Z|z|[+-]\d{2}(?::?\d{2})?)?)?\s*"
)
_TIME = re.compile(r"\s*(\d{1,2}):(\d{2})(?::(\d{2})(\.\d{1,12})?)?\s*")
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()


class Moment(msgspec.Struct, frozen=True):
    """A date or a timestamp: seconds since 1970, UTC if `has_offset`, else of an unnamed clock."""

    seconds: Fraction
    has_offset: bool


class Literal(msgspec.Struct, frozen=True):
    """A constant as written; it gets its type from the other side of the comparison.

    `value`: None, bool, Decimal (all numbers), str, bytes, `Moment` or Fraction (seconds of a day).
    """

    kind: Kind
    value: object


class Grid(msgspec.Struct, frozen=True):
    """The values `n * step` for `low <= n <= high` that a type can hold."""

    step: Fraction
    low: int
    high: int


def number(text: str) -> Literal:
    """Return the literal of an unsigned number: digits, optionally a point and an exponent."""
    value = Decimal(text)
    if not value.is_finite() or abs(value.adjusted()) > _EXPONENT_MAX:
        raise RequestError(f"the number {text[:40]} in the filter is out of range")
    if "e" in text.lower():
        return Literal("float", value)
    return Literal("decimal" if "." in text else "integer", value)


def moment(text: str) -> Moment:
    """Return the moment of an ISO 8601 date or timestamp.

    Raises:
        RequestError: The text is not one.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise RequestError(f"{text!r} is not a date or timestamp like '2026-01-31 10:00:00'")
    try:
        day = dt.date(*(int(part) for part in found.groups()[:3])).toordinal() - _EPOCH_DAY
        clock = _clock(*found.groups()[3:7])
        offset = _offset_seconds(found.group(8))
    except ValueError as error:
        raise RequestError(f"{text!r} is not a date or timestamp: {error}") from error
    return Moment(day * DAY_SECONDS + clock - (offset or 0), offset is not None)


def time_of_day(text: str) -> Fraction:
    """Return the seconds since midnight of an ISO 8601 time.

    Raises:
        RequestError: The text is not one.
    """
    found = _TIME.fullmatch(text)
    try:
        if found is not None:
            return _clock(*found.groups())
    except ValueError as error:
        raise RequestError(f"{text!r} is not a time: {error}") from error
    raise RequestError(f"{text!r} is not a time like '10:00:00'")


def _clock(
    hour: str | None, minute: str | None, second: str | None, fraction: str | None
) -> Fraction:
    if hour is None:
        return Fraction(0)
    plain = dt.time(int(hour), int(minute or 0), int(second or 0))
    whole = plain.hour * 3600 + plain.minute * 60 + plain.second
    return whole + (Fraction(fraction) if fraction else Fraction(0))


def _offset_seconds(text: str | None) -> int | None:
    if text is None:
        return None
    if text in "Zz":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        raise ValueError(f"no offset {text}")
    return (-1 if text[0] == "-" else 1) * (hours * 3600 + minutes * 60)


def grid(type_: pa.DataType) -> Grid | None:
    """Return the grid of whole numbers, decimals, dates, times and timestamps, else None."""
    if pa.types.is_integer(type_):
        bits = type_.bit_width
        if pa.types.is_signed_integer(type_):
            return Grid(Fraction(1), -(1 << bits - 1), (1 << bits - 1) - 1)
        return Grid(Fraction(1), 0, (1 << bits) - 1)
    if pa.types.is_decimal(type_):
        bound = 10**type_.precision - 1
        return Grid(Fraction(10) ** -type_.scale, -bound, bound)
    return _time_grid(type_)


def _time_grid(type_: pa.DataType) -> Grid | None:
    int64 = 1 << 63
    if pa.types.is_date(type_):
        return Grid(Fraction(DAY_SECONDS), -(1 << 31), (1 << 31) - 1)
    if pa.types.is_timestamp(type_):
        # The smallest int64 is left out: Arrow's own tools take it for "not a time".
        return Grid(Fraction(1, _UNITS[type_.unit]), -int64 + 1, int64 - 1)
    if pa.types.is_time(type_):
        return Grid(Fraction(1, _UNITS[type_.unit]), 0, DAY_SECONDS * _UNITS[type_.unit] - 1)
    return None


def position(literal: Literal, type_: pa.DataType) -> Fraction | None:
    """Return the position of `literal` on the grid of `type_`; None if they are not comparable.

    Raises:
        RequestError: A text is not a date, time or timestamp, but should be.
    """
    if literal.kind in NUMBER_KINDS:
        is_number = pa.types.is_integer(type_) or pa.types.is_decimal(type_)
        return Fraction(cast("Decimal", literal.value)) if is_number else None
    if pa.types.is_time(type_):
        if literal.kind == "string":
            return time_of_day(str(literal.value))
        return cast("Fraction", literal.value) if literal.kind == "time" else None
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return _moment_position(literal, type_)
    return None


def is_on_line(literal: Literal, type_: pa.DataType) -> bool:
    """Return whether `literal` has a position on the grid of `type_`."""
    return grid(type_) is not None and position(literal, type_) is not None


def _moment_position(literal: Literal, type_: pa.DataType) -> Fraction | None:
    found = moment(str(literal.value)) if literal.kind == "string" else literal.value
    if not isinstance(found, Moment):
        return None
    if found.has_offset and not (pa.types.is_timestamp(type_) and type_.tz):
        raise RequestError(
            f"a timestamp with an offset cannot be compared with a {type_} column, which has no"
            " time zone; leave the offset out"
        )
    return found.seconds


def place(operator: Operator, at: Fraction, grid_: Grid) -> tuple[Operator, int] | bool:
    """Return the comparison `operator n` that is equal to `operator at` for every grid value.

    A bool if the result is the same for all grid values.
    """
    quotient = at / grid_.step
    n, rest = divmod(quotient.numerator, quotient.denominator)
    if operator in ("=", "!="):
        is_held = rest == 0 and grid_.low <= n <= grid_.high
        return (operator, n) if is_held else operator == "!="
    if rest:  # n < at / step < n + 1
        operator = "<=" if operator in ("<", "<=") else ">"
    if n < grid_.low:
        return operator in (">", ">=")
    if n > grid_.high:
        return operator in ("<", "<=")
    return operator, n


def scalar(n: int, type_: pa.DataType) -> pa.Scalar[Any]:
    """Return the n-th value of the grid of `type_`."""
    if pa.types.is_decimal(type_):
        return pa.scalar(_decimal(n, type_.scale), type_)
    return pa.scalar(n * DAY_SECONDS * 1_000 if pa.types.is_date64(type_) else n, type_)


def _decimal(n: int, scale: int) -> Decimal:
    # By digits: Decimal's arithmetic would round to the 28 digits of its context.
    return Decimal((int(n < 0), tuple(int(digit) for digit in str(abs(n))), -scale))


def decimal_text(n: int, scale: int) -> str:
    """Return `n * 10**-scale` in plain digits."""
    return format(_decimal(n, scale), "f")


def own_scalar(literal: Literal) -> pa.Scalar[Any]:
    """Return a literal in its own type, if no column gives it a type.

    Raises:
        RequestError: It is a whole number outside int64, or has more than 38 digits.
    """
    value = literal.value
    if isinstance(value, Decimal):
        return _own_number(literal.kind, value)
    if isinstance(value, Moment):
        whole = int(value.seconds * 1_000_000)
        return pa.scalar(
            whole, pa.timestamp("us", tz="UTC") if value.has_offset else pa.timestamp("us")
        )
    if isinstance(value, Fraction):
        return pa.scalar(int(value * 1_000_000), pa.time64("us"))
    if value is None:
        return pa.scalar(None, pa.bool_())
    return pa.scalar(cast("Any", value))


def _own_number(kind: Kind, value: Decimal) -> pa.Scalar[Any]:
    if kind == "float":
        return pa.scalar(float(value), pa.float64())
    if kind == "integer":
        if not -(1 << 63) <= int(value) < 1 << 63:
            raise RequestError(f"the number {value} in the filter is outside the range of int64")
        return pa.scalar(int(value), pa.int64())
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale, 1)
    if precision > 38:
        raise RequestError(f"the number {value} in the filter has more than 38 digits")
    return pa.scalar(value, pa.decimal128(precision, scale))


def literal_of(scalar: pa.Scalar[Any]) -> Literal:
    """Return a non-null Arrow constant as a literal; it must have a grid or be exact.

    That is any type but floats and nested values.
    """
    type_ = scalar.type
    if pa.types.is_temporal(type_):
        return _temporal_literal(int(cast("Any", scalar).value), type_)
    value = scalar.as_py()
    if pa.types.is_integer(type_):
        return Literal("integer", Decimal(value))
    kinds: dict[type, Kind] = {bool: "bool", Decimal: "decimal", str: "string", bytes: "bytes"}
    return Literal(kinds[type(value)], value)


def _temporal_literal(ticks: int, type_: Any) -> Literal:
    if pa.types.is_date32(type_):
        return Literal("moment", Moment(Fraction(ticks * DAY_SECONDS), has_offset=False))
    seconds = Fraction(ticks, _UNITS[type_.unit])
    if pa.types.is_time(type_):
        return Literal("time", seconds)
    return Literal("moment", Moment(seconds, has_offset=bool(type_.tz)))
