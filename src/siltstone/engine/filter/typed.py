"""Typed pieces of a filter, and the type in which two of them meet.

    int, int        int64; decimal256(20, 0) where uint64 takes part
    decimal, int    decimal256, wide enough for both
    float, number   float64
    date, timestamp the timestamp, if it has no time zone

decimal256 (76 digits) instead of decimal128, so that widening does not run out of digits. A whole
number beyond 2**53 meets a float as the nearest float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter.literals import Literal
from siltstone.engine.filter.pushed import Push
from siltstone.errors import RequestError
from siltstone.formats.types.extensions import UUID, is_extension, is_uuid, storage_type
from siltstone.text.spelled import is_binary

DIGITS_MAX = 76
_INT64_DIGITS = 19
_UINT64_DIGITS = 20
_UNIT_ORDER = ("s", "ms", "us", "ns")


class Value(msgspec.Struct, frozen=True):
    """An expression with its type.

    `column` names the top-level column that the expression is, and nothing but is. `push` is what
    Lance may evaluate of a boolean one.
    """

    type: pa.DataType
    expression: pc.Expression
    push: Push | None = None
    column: str | None = None


def boolean(expression: pc.Expression, push: Push | None = None) -> Value:
    return Value(pa.bool_(), expression, push)


def of_scalar(scalar: pa.Scalar[Any]) -> Value:
    return Value(scalar.type, constant(scalar))


def constant(scalar: pa.Scalar[Any]) -> pc.Expression:
    return pc.scalar(cast("Any", scalar))


def first_valid(parts: Sequence[pc.Expression]) -> pc.Expression:
    return cast("pc.Expression", pc.coalesce(*cast("Sequence[Any]", parts)))


def null() -> pc.Expression:
    return constant(pa.scalar(None, pa.bool_()))


def constant_where_valid(value: Value, answer: bool) -> pc.Expression:
    """Return `answer`, but null where `value` is null."""
    return pc.if_else(value.expression.is_valid(), pc.scalar(answer), null())


def of_uuid(term: Value | Literal, other: Value | Literal) -> Value | Literal:
    """Return a uuid as its 16 bytes, for Arrow compares no uuid; so too a text that is compared."""
    if isinstance(term, Value):
        if not is_uuid(term.type):
            return term
        storage = storage_type(term.type)
        return Value(storage, term.expression.cast(storage), column=term.column)
    if term.kind != "string" or not isinstance(other, Value) or not is_uuid(other.type):
        return term
    try:
        return Literal("bytes", UUID(str(term.value)).bytes)
    except ValueError:
        raise RequestError(f"{str(term.value)[:60]!r} in the filter is not a UUID") from None


def is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)


def is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which values of both types are compared; None if there is none."""
    if any(pa.types.is_nested(kind) or is_extension(kind) for kind in (left, right)):
        return None
    if left == right:
        return left
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if is_text(left) and is_text(right):
        return pa.large_string()
    if is_binary(left) and is_binary(right):
        return pa.large_binary()
    return _common_time(left, right)


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    has_decimal = pa.types.is_decimal(left) or pa.types.is_decimal(right)
    if not has_decimal and pa.uint64() not in (left, right):
        return pa.int64()
    (left_whole, left_scale), (right_whole, right_scale) = digits(left), digits(right)
    scale = max(left_scale, right_scale)
    precision = max(left_whole, right_whole) + scale
    return pa.decimal256(precision, scale) if precision <= DIGITS_MAX else None


def digits(type_: pa.DataType) -> tuple[int, int]:
    """Return how many digits a type has before and after the point."""
    if pa.types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    return (_UINT64_DIGITS if type_ == pa.uint64() else _INT64_DIGITS), 0


def _common_time(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right):
        if bool(left.tz) != bool(right.tz):
            return None
        unit = max(left.unit, right.unit, key=_UNIT_ORDER.index)
        return pa.timestamp(unit, tz="UTC") if left.tz else pa.timestamp(unit)
    for one, other in ((left, right), (right, left)):
        if pa.types.is_date(one) and pa.types.is_timestamp(other) and not other.tz:
            return other
    return _common_span(left, right)


def _common_span(left: Any, right: Any) -> pa.DataType | None:
    if pa.types.is_date(left) and pa.types.is_date(right):
        return pa.date32()
    if pa.types.is_duration(left) and pa.types.is_duration(right):
        return pa.duration(max(left.unit, right.unit, key=_UNIT_ORDER.index))
    if pa.types.is_time(left) and pa.types.is_time(right):
        unit = max(left.unit, right.unit, key=_UNIT_ORDER.index)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    return None


def widen(value: Value, type_: pa.DataType) -> pc.Expression:
    """Return `value` in the type that `common_type` chose."""
    if value.type == type_:
        return value.expression
    # Unsafe only towards floats: the nearest float64 is meant, a safe cast would refuse 2**53 + 1.
    return value.expression.cast(type_, safe=not pa.types.is_floating(type_))
