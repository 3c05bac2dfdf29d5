"""Arithmetic, casts and functions of filters.

+ - *     whole numbers as int64, decimals as decimal256, floats as float64; overflow is an error
/         whole numbers divide to whole numbers, everything else to float64; by zero: null
%         whole numbers only; the sign of the dividend; by zero: null
CAST      to whole numbers cuts the fraction off; a value that does not fit is an error
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from siltstone.engine.filter import literals, typed
from siltstone.engine.filter.literals import Literal
from siltstone.engine.filter.typed import Value, of_scalar
from siltstone.errors import RequestError
from siltstone.text.spelled import is_binary


def binary(operator: str, left: Value, right: Value) -> Value:
    """Return `left operator right`.

    Raises:
        RequestError: The values are not numbers, or have more digits than a decimal.
    """
    for value in (left, right):
        if not typed.is_number(value.type):
            raise RequestError(f"{operator} needs numbers, not {value.type}")
    if operator == "%":
        return _modulo(left, right)
    if operator == "/":
        return _divided(left, right)
    type_ = _result_type(operator, left.type, right.type)
    if pa.types.is_decimal(type_):
        terms = (_as_decimal(left), _as_decimal(right))
    else:
        terms = (typed.widen(left, type_), typed.widen(right, type_))
    kernel = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}[operator]
    return Value(type_, kernel(*terms))


def _as_decimal(value: Value) -> pc.Expression:
    whole, scale = typed.digits(value.type)
    return typed.widen(value, pa.decimal256(whole + scale, scale))


def _result_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the type of a sum, difference or product."""
    type_ = typed.common_type(left, right)
    if type_ is not None and not pa.types.is_decimal(type_):
        return pa.int64() if pa.types.is_integer(type_) else pa.float64()
    (whole, scale), (other_whole, other_scale) = typed.digits(left), typed.digits(right)
    if operator == "*":
        precision, scale = whole + scale + other_whole + other_scale + 1, scale + other_scale
    else:
        scale = max(scale, other_scale)
        precision = max(whole, other_whole) + scale + 1
    if precision > typed.DIGITS_MAX:
        raise RequestError(f"{left} {operator} {right} has more digits than a decimal")
    return pa.decimal256(precision, scale)


def _or_null(divisor: pc.Expression, type_: pa.DataType) -> pc.Expression:
    """Return the divisor, null where it is zero: a filter must not fail on one row's zero."""
    zero, nothing = (typed.constant(pa.scalar(value, type_)) for value in (0, None))
    return pc.if_else(divisor == zero, nothing, divisor)


def _are_whole(*values: Value) -> bool:
    return all(pa.types.is_integer(value.type) for value in values)


def _divided(left: Value, right: Value) -> Value:
    type_ = pa.int64() if _are_whole(left, right) else pa.float64()
    divisor = _or_null(typed.widen(right, type_), type_)
    return Value(type_, pc.divide_checked(typed.widen(left, type_), divisor))


def _modulo(left: Value, right: Value) -> Value:
    if not _are_whole(left, right):
        raise RequestError(f"% needs whole numbers, not {left.type} and {right.type}")
    type_ = pa.int64()
    dividend, divisor = typed.widen(left, type_), _or_null(typed.widen(right, type_), type_)
    # x % -1 is 0, but the smallest int64 divided by -1 would overflow.
    safe = pc.if_else(divisor == pc.scalar(-1), pc.scalar(1), divisor)
    quotient = pc.divide_checked(dividend, safe)
    return Value(type_, pc.subtract_checked(dividend, pc.multiply_checked(quotient, safe)))


def negative(term: Value | Literal) -> Value | Literal:
    if isinstance(term, Value):
        return _of_number("-", term, pc.negate_checked)
    if isinstance(term.value, Decimal):
        # copy_negate: the unary minus of Decimal rounds to 28 digits and drops -0's sign.
        return Literal(term.kind, term.value.copy_negate())
    if term.kind == "null":
        return term
    raise RequestError(f"- needs a number, not a {term.kind} literal")


def _of_number(name: str, value: Value, kernel: Callable[..., pc.Expression]) -> Value:
    if not typed.is_number(value.type):
        raise RequestError(f"{name} needs a number, not {value.type}")
    type_ = pa.int64() if pa.types.is_integer(value.type) else value.type
    return Value(type_, kernel(typed.widen(value, type_)))


def function(name: str, value: Value) -> Value:
    """Return lower, upper, length (characters; bytes of a binary) or abs of a value."""
    if name == "Abs":
        return _of_number("abs", value, pc.abs_checked)
    if name == "Length" and is_binary(value.type):
        return Value(pa.int64(), pc.binary_length(value.expression).cast(pa.int64()))
    if not typed.is_text(value.type):
        raise RequestError(f"{name.lower()} needs a string, not {value.type}")
    if name == "Length":
        return Value(pa.int64(), pc.utf8_length(value.expression).cast(pa.int64()))
    kernel = {"Lower": pc.utf8_lower, "Upper": pc.utf8_upper}[name]
    return Value(value.type, kernel(value.expression))


_TARGETS: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "TEXT": pa.string(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
}


def cast(term: Value | Literal, to: exp.DataType) -> Value | Literal:
    """Return CAST(term AS to); DATE '...', TIMESTAMP '...' and TIME '...' stay literals.

    Raises:
        RequestError: There is no such type or cast.
    """
    target = _target(to)
    if isinstance(term, Literal):
        if term.kind == "string" and isinstance(term.value, str) and pa.types.is_temporal(target):
            return _temporal_literal(term.value, target)
        if term.kind == "null":
            return of_scalar(pa.scalar(None, target))
        term = of_scalar(literals.own_scalar(term))
    return _cast_value(term, target)


def _target(to: exp.DataType) -> pa.DataType:
    sizes = [int(size.name) for size in to.expressions if size.name.isdigit()]
    name = to.this.value if isinstance(to.this, exp.DataType.Type) else str(to.this)
    if name == "DECIMAL" and len(sizes) in (1, 2):
        precision, scale = sizes[0], (sizes[1] if len(sizes) == 2 else 0)
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    if name in _TARGETS and not sizes:
        return _TARGETS[name]
    raise RequestError(f"a filter cannot cast to {to.sql()[:60]}; a decimal needs its digits")


def _temporal_literal(text: str, target: pa.DataType) -> Literal:
    if pa.types.is_time(target):
        return Literal("time", literals.time_of_day(text))
    found = literals.moment(text)
    if pa.types.is_date32(target) and (found.has_offset or found.seconds % literals.DAY_SECONDS):
        raise RequestError(f"{text!r} is not a date like '2026-01-31'")
    if pa.types.is_timestamp(target) and target.tz and not found.has_offset:
        found = literals.Moment(found.seconds, has_offset=True)
    return Literal("moment", found)


def _cast_value(value: Value, target: pa.DataType) -> Value:
    source, found = value.type, value.expression
    if source == target or _is_same_clock(source, target):
        return Value(source, found)
    if not _has_cast(source, target):
        raise RequestError(f"a filter cannot cast {source} to {target}")
    if pa.types.is_integer(target) and (
        pa.types.is_floating(source) or pa.types.is_decimal(source)
    ):
        found = pc.trunc(found)  # then a safe cast: it refuses NaN and what does not fit
    safe = not pa.types.is_floating(target)
    return Value(target, found.cast(target, safe=safe))


def _is_same_clock(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return bool(source.tz) == bool(target.tz)
    return False


def _has_cast(source: pa.DataType, target: pa.DataType) -> bool:
    plain = typed.is_number(target) or pa.types.is_boolean(target) or typed.is_text(target)
    if typed.is_number(source) or pa.types.is_boolean(source):
        return plain
    if typed.is_text(source):
        return plain or pa.types.is_temporal(target)
    if pa.types.is_date32(source):
        is_naive = pa.types.is_timestamp(target) and not target.tz
        return typed.is_text(target) or is_naive
    return pa.types.is_timestamp(source) and not source.tz and pa.types.is_date32(target)
