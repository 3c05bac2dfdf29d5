"""Constants: literals and parameters, and what a column makes of them without DuckDB.

A column takes one only where there is no doubt what DuckDB would make of it: a whole number for a
column of whole numbers, a text for a text, a date. All else is left to DuckDB.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from siltstone.engine.filter.typed import is_text
from siltstone.query.sql.shielded import folded
from siltstone.query.sql.writes.words import Words

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_WORDS = {"null": None, "true": True, "false": False}
_EXACT = 1 << 53
"""Whole numbers up to it are floating-point numbers, too."""


@dataclass(frozen=True, slots=True)
class ParameterName:
    """A parameter by its name, in small letters."""

    name: str


@dataclass(frozen=True, slots=True)
class LiteralValue:
    """A literal: a text, a whole number, a Decimal for `1.5`, a float for `1e3`, a truth, None."""

    value: object


Constant: TypeAlias = ParameterName | LiteralValue
Given: TypeAlias = Mapping[str, object]
"""The values of the parameters by their names."""


class UnclearError(Exception):
    """DuckDB has to say what a column makes of a value, or that it does not fit."""


def constant_of(words: Words) -> Constant | None:
    """Return the constant that an expression is; None: it is another one."""
    found = list(words)
    sign = 1
    if len(found) == 2 and found[0].low in {"-", "+"} and found[1].kind == "number":
        sign = -1 if found[0].low == "-" else 1
        found = found[1:]
    if len(found) != 1:
        return None
    (word,) = found
    if word.kind == "parameter":
        return ParameterName(folded(word.text[1:]))
    if word.kind == "text" and word.text[0] == "'":
        return LiteralValue(word.text[1:-1].replace("''", "'"))
    if word.kind == "number":
        return _number(word.text, sign)
    return LiteralValue(_WORDS[word.low]) if word.low in _WORDS else None


def _number(text: str, sign: int) -> LiteralValue:
    plain = text.replace("_", "")
    if plain.isdecimal():
        return LiteralValue(sign * int(plain))
    if "e" in plain.lower():
        return LiteralValue(sign * float(plain))
    return LiteralValue(sign * Decimal(plain))


def value_of(constant: Constant, given: Given) -> object:
    """Return the value of a constant."""
    return given[constant.name] if isinstance(constant, ParameterName) else constant.value


def fitting(constant: Constant, kind: pa.DataType, given: Given) -> Any:
    """Return what a column of a type makes of a constant.

    Raises:
        UnclearError: See there.
    """
    value = value_of(constant, given)
    if value is None:
        return None
    for is_of, taken in _TAKEN:
        if is_of(kind):
            return taken(value, kind)
    raise UnclearError


def _of(*kinds: type) -> Callable[[Any, Any], Any]:
    def taken(value: Any, _: Any) -> Any:
        if type(value) not in kinds:
            raise UnclearError
        return value

    return taken


def _whole(value: Any, kind: Any) -> Any:
    if type(value) is not int:
        raise UnclearError
    half = 1 << (kind.bit_width - 1)
    low = 0 if pa.types.is_unsigned_integer(kind) else -half
    if not low <= value < low + 2 * half:
        raise UnclearError
    return value


def _floating(value: Any, _: Any) -> Any:
    if type(value) is int and abs(value) < _EXACT:
        return float(value)
    if type(value) is Decimal and _is_exact(value):
        return float(value) if value else 0.0  # DuckDB's decimals have no zero below zero
    if type(value) is float:
        return value
    raise UnclearError


def _is_exact(value: Decimal) -> bool:
    """Say whether one division makes a float of it: DuckDB rounds others in its own way."""
    _, digits, exponent = value.as_tuple()
    return isinstance(exponent, int) and -22 <= exponent <= 0 and len(digits) <= 15


def _date(value: Any, _: Any) -> Any:
    if type(value) is str and _DATE.fullmatch(value):
        try:
            return dt.date.fromisoformat(value)
        except ValueError as error:
            raise UnclearError from error
    if type(value) is dt.date:
        return value
    raise UnclearError


def _time(value: Any, kind: Any) -> Any:
    is_fit = type(value) is dt.datetime and (value.tzinfo is None) == (kind.tz is None)
    if not is_fit or kind.unit not in {"us", "ns"}:
        raise UnclearError
    return value


def _decimal(value: Any, kind: Any) -> Any:
    if type(value) not in {int, Decimal}:
        raise UnclearError
    found = Decimal(value)
    if not found.is_finite():
        raise UnclearError
    _, digits, exponent = found.as_tuple()
    assert isinstance(exponent, int)
    if -exponent > kind.scale or len(digits) + exponent > kind.precision - kind.scale:
        raise UnclearError
    return found


def _is_binary(kind: Any) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


_TAKEN: tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], Any]], ...] = (
    (pa.types.is_integer, _whole),
    (is_text, _of(str)),
    (pa.types.is_float64, _floating),
    (pa.types.is_boolean, _of(bool)),
    (pa.types.is_date32, _date),
    (pa.types.is_timestamp, _time),
    (pa.types.is_decimal128, _decimal),
    (_is_binary, _of(bytes)),
)
