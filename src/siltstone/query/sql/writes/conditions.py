"""Conditions: a WHERE of comparisons between columns and constants, which filters understand.

What `condition_of` takes means the same to DuckDB and to a filter of the store. Of other forms, and
of columns of floating-point numbers, whose NaN they rank otherwise, DuckDB finds the rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa

from siltstone.engine.filter.pushed import text_literal
from siltstone.query.sql.shielded import folded, quoted
from siltstone.query.sql.writes.constants import (
    Constant,
    Given,
    UnclearError,
    constant_of,
    fitting,
    value_of,
)
from siltstone.query.sql.writes.words import Words

_OPERATORS = {"==": "=", "!=": "<>"} | {sign: sign for sign in ("=", "<>", "<", "<=", ">", ">=")}
_DEPTH_MAX = 32


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column, an operator of `=`, `<` .., `in`, `is null`, `is not null`, and its constants."""

    column: str
    operator: str
    constants: tuple[Constant, ...] = ()


@dataclass(frozen=True, slots=True)
class Junction:
    """`and`, `or`, or `not` of one part."""

    operator: str
    parts: tuple[Condition, ...]


Condition: TypeAlias = Comparison | Junction


def condition_of(words: Words, table: str, depth: int = 0) -> Condition | None:
    """Return the condition that an expression is; None: it is of another form.

    `table` is the name by which it may call the columns.
    """
    if not words or depth > _DEPTH_MAX:
        return None
    for operator in ("or", "and"):
        parts = _joined(words, operator)
        if len(parts) > 1:
            found = [condition_of(part, table, depth + 1) for part in parts]
            known = tuple(each for each in found if each is not None)
            return Junction(operator, known) if len(known) == len(found) else None
    if words.starts("not"):
        inner = condition_of(words[1:], table, depth + 1)
        return None if inner is None else Junction("not", (inner,))
    if words.low(0) == "(" and words.bracketed() == len(words):
        return condition_of(words.inside(), table, depth + 1)
    return _comparison(words, table)


def _joined(words: Words, operator: str) -> list[Words]:
    if operator == "and" and words.find_low("between") < len(words):
        return [words]
    return words.split(operator)


def _comparison(words: Words, table: str) -> Comparison | None:
    column, rest = _column(words, table)
    if column is None:
        return None
    if rest.starts("is", "null") and len(rest) == 2:
        return Comparison(column, "is null")
    if rest.starts("is", "not", "null") and len(rest) == 3:
        return Comparison(column, "is not null")
    if rest.low(0) == "in" and rest.low(1) == "(" and rest.bracketed(1) == len(rest):
        return _with(column, "in", rest.inside(1).split())
    operator = _OPERATORS.get(rest.low(0))
    return None if operator is None else _with(column, operator, [rest[1:]])


def _column(words: Words, table: str) -> tuple[str | None, Words]:
    """Return the column that an expression begins with, and what is behind it."""
    names = [word.name for word in words[:3]]
    if names and names[0] is not None and words.low(1) != ".":
        return names[0], words[1:]
    is_of_table = len(names) == 3 and names[0] is not None and folded(names[0]) == folded(table)
    return (names[2], words[3:]) if is_of_table else (None, words)


def _with(column: str, operator: str, given: Sequence[Words]) -> Comparison | None:
    found = [constant_of(each) for each in given]
    known = tuple(each for each in found if each is not None)
    return Comparison(column, operator, known) if found and len(known) == len(found) else None


# what it means for a table


def key_of(condition: Condition, key: Sequence[str], fields: pa.Schema, given: Given) -> Any:
    """Return the key that a condition asks for and nothing else; None: it asks for more.

    Raises:
        UnclearError: DuckDB has to say what its values mean.
    """
    parts = condition.parts if isinstance(condition, Junction) else (condition,)
    if isinstance(condition, Junction) and condition.operator != "and":
        return None
    asked: dict[str, object] = {}
    for part in parts:
        if not isinstance(part, Comparison) or part.operator != "=":
            return None
        asked[folded(part.column)] = _value(part.constants[0], part.column, fields, given)
    if len(parts) != len(key) or asked.keys() != {folded(name) for name in key}:
        return None
    found = tuple(asked[folded(name)] for name in key)
    return found[0] if len(key) == 1 else found


def filter_of(condition: Condition, fields: pa.Schema, given: Given) -> str:
    """Return the filter that means the same.

    Raises:
        UnclearError: DuckDB has to say what its values mean.
    """
    if isinstance(condition, Junction):
        parts = [f"({filter_of(part, fields, given)})" for part in condition.parts]
        word = condition.operator
        return f"not {parts[0]}" if word == "not" else f" {word} ".join(parts)
    column = quoted(_field(condition.column, fields).name)
    if not condition.constants:
        return f"{column} {condition.operator}"
    values = [_value(each, condition.column, fields, given) for each in condition.constants]
    texts = ", ".join(map(_text, values))
    listed = f"({texts})" if condition.operator == "in" else texts
    return f"{column} {condition.operator} {listed}"


def _field(column: str, fields: pa.Schema) -> pa.Field:
    for field in fields:
        if folded(field.name) == folded(column):
            return field
    raise UnclearError


def _value(constant: Constant, column: str, fields: pa.Schema, given: Given) -> object:
    kind = _field(column, fields).type
    if pa.types.is_floating(kind) or value_of(constant, given) is None:
        raise UnclearError
    return fitting(constant, kind, given)


def _text(value: object) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, dt.date):  # a datetime, too
        return f"'{value.isoformat()}'"
    assert isinstance(value, str)
    return text_literal(value)
