"""Defaults: DEFAULT in a statement is the constant that the column's default is, else NULL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from siltstone.formats.types.defaults import column_of, default_in, repeated
from siltstone.formats.types.extensions import is_uuid
from siltstone.local.statements.names import columns_of
from siltstone.local.statements.running import Running
from siltstone.query.sql.writes.constants import LiteralValue
from siltstone.query.sql.writes.queries import Values
from siltstone.query.sql.writes.statements import Assignment, ValueText
from siltstone.text.spelled import is_binary

_KNOWN = (
    pa.types.is_integer, pa.types.is_boolean, pa.types.is_float64, pa.types.is_date32,
    pa.types.is_string, pa.types.is_large_string,
)  # fmt: skip
_PER_UNIT = {"s": "to_seconds", "ms": "to_milliseconds", "us": "to_microseconds"}


def in_row(
    row: Sequence[ValueText], names: Sequence[str], fields: pa.Schema
) -> tuple[ValueText, ...]:
    """Return the values of a row, DEFAULT among them as what it is in its column."""
    pairs = zip(row, names, strict=False)
    found = (part if part.text else _value(fields.field(name)) for part, name in pairs)
    return (*found, *row[len(names) :])


def in_sets(sets: Sequence[Assignment], fields: pa.Schema) -> tuple[Assignment, ...]:
    """Return assignments, DEFAULT among them as what it is in its column."""
    if all(each.value.text for each in sets):
        return tuple(sets)
    names = columns_of([each.column for each in sets], fields)
    row = in_row([each.value for each in sets], names, fields)
    return tuple(Assignment(each.column, part) for each, part in zip(sets, row, strict=True))


def _value(field: pa.Field) -> ValueText:
    text, kind = default_in(field), field.type
    if text is None:
        return ValueText("NULL", LiteralValue(None))
    is_known = any(is_of(kind) for is_of in _KNOWN)
    constant = LiteralValue(column_of(text, kind)[0].as_py()) if is_known else None
    return ValueText(_expression(text, kind), constant)


def _expression(text: str, kind: Any) -> str:
    """Return the expression of DuckDB for a default."""
    quoted = text.replace("'", "''").replace("\0", "' || chr(0) || '")  # a null ends a statement
    literal = f"'{quoted}'"
    if is_uuid(kind):
        return f"CAST({literal} AS UUID)"
    if is_binary(kind):
        return f"from_hex({literal})"
    if pa.types.is_duration(kind):
        per = _PER_UNIT.get(kind.unit)
        return f"{per}({text})" if per else f"to_microseconds({text} // 1000)"
    return literal if not pa.types.is_integer(kind) else text


def completed(rows: pa.Table, fields: pa.Schema) -> pa.Table:
    """Return rows with all columns of their table: those that they lack have their defaults."""
    columns: list[Any] = [
        rows.column(field.name)
        if field.name in rows.column_names
        else repeated(default_in(field), field.type, rows.num_rows)
        for field in fields
    ]
    return pa.Table.from_arrays(columns, fields.names)


def values_of(run: Running, expressions: Mapping[str, str], fields: pa.Schema) -> dict[str, object]:
    """Return the values of the expressions behind DEFAULT, by their columns.

    Raises:
        RequestError: DuckDB refuses one.
        SchemaMismatchError: A value is none of its column.
    """
    if not expressions:
        return {}
    types = run.columns(fields)
    columns = tuple(types[name] for name in expressions)
    found = run.values(Values(columns, tuple(expressions.values()), "", ""), fields)
    return {name: _user_value(found.column(name), fields.field(name)) for name in expressions}


def _user_value(column: Any, field: pa.Field) -> object:
    is_same = column.type == field.type or is_uuid(field.type)
    return (column if is_same else column.cast(field.type))[0].as_py()
