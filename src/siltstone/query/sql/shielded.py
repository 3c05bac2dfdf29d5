"""Shielded columns: those whose filters DuckDB evaluates itself, instead of pushing them.

DuckDB turns a filter into an Arrow expression through Python's values, and that fails for some:

    IN (..) on a timestamp with a zone   needs pytz, which nothing here brings
    IN (..) on uint64 above int64        Arrow takes Python's integers for int64
    IN (..) on nanoseconds               Python's times have microseconds: others are found
    any comparison of time64[ns], UUIDs  has no form at all
    any of nanoseconds with a zone       DuckDB has microseconds of them, the column has more
    <= NaN on a float                    becomes the literal true: without the column, a null passes

That is DuckDB 1. DuckDB 2 pushes the first two as they are, and keeps the others to itself.

A join with few keys makes an IN, too, while the statement runs. Such filters are rare, and the
others on these columns are worth pushing, so a column is shielded only once one of them was met. A
view does that: DuckDB does not push what a filter says of an expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from siltstone.engine.filter.arrow import mentions
from siltstone.errors import RequestError
from siltstone.query.sql.dataset import Filter

_OF_ANY_COLUMN = "can't be an Arrow Scan Pushdown Filter"
_REFUSALS = ("'pytz'", "OverflowError", "for Arrow Filter Pushdown", _OF_ANY_COLUMN)
_CUT_LISTS = ("value_set=timestamp[us", "value_set=time64[us]")
_LOST = re.compile(r"\Atrue\Z|\b(?:and|or) true\)|\(true (?:and|or) ")
"""A comparison that became a literal; in a text constant it only costs a second run."""


def is_met(error: Exception) -> bool:
    """Say whether DuckDB could not push a filter."""
    return any(text in str(error) for text in _REFUSALS)


def is_of_any_column(error: Exception) -> bool:
    """Say whether DuckDB cannot push the filter whatever column it is on, as IS DISTINCT FROM."""
    return _OF_ANY_COLUMN in str(error)


def is_cut(filter: Filter, schema: pa.Schema) -> bool:  # noqa: A002 (pyarrow's word)
    """Say whether a filter may have lost nanoseconds that the column has, or a whole comparison."""
    if filter is None:
        return False
    text = str(filter)
    if _LOST.search(text):
        return True
    zoned = [field.name for field in schema if _has_inside(field.type, _has_zoned_nanoseconds)]
    if any(mentions(text, name) for name in zoned):
        return True
    names = [field.name for field in schema if _has_inside(field.type, _has_nanoseconds)]
    is_list = any(each in text for each in _CUT_LISTS)
    return is_list and any(mentions(text, name) for name in names)


def columns(schema: pa.Schema) -> list[str]:
    """Return the columns of which DuckDB cannot push all filters."""
    return [field.name for field in schema if _has_inside(field.type, _fails)]


def view(name: str, source: str, columns: list[str]) -> str:
    """Return the statement that makes a view of `source`, some of whose columns are shielded."""
    parts = [f"struct_extract_at(row({quoted(each)}), 1) AS {quoted(each)}" for each in columns]
    replaced = ", ".join(parts)  # a field by its name DuckDB 2 sees through, by its place none does
    return f"CREATE TEMP VIEW {quoted(name)} AS FROM {quoted(source)} SELECT * REPLACE ({replaced})"


def refuse_alike(name: str, schema: pa.Schema) -> None:
    """Refuse a table two columns of which DuckDB does not tell apart: it would rename one of them.

    Raises:
        RequestError: It has two such columns, or one without a name.
    """
    seen: dict[str, str] = {}
    for column in schema.names:
        if not column:
            raise RequestError(
                f"a column of {name!r} has no name, and DuckDB reads no such column; rename it, or"
                " leave it out"
            )
        other = seen.setdefault(folded(column), column)
        if other is not column:
            raise RequestError(
                f"DuckDB does not tell the columns {other!r} and {column!r} of {name!r} apart;"
                " rename one, or use scan()"
            )


def folded(name: str) -> str:
    """Return what two names have in common that DuckDB does not tell apart: ASCII letters alone."""
    return name.encode().lower().decode()


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _has_inside(kind: Any, is_one: Callable[[Any], bool]) -> bool:
    """Say whether a type is one, or a struct with one: DuckDB pushes filters of fields, too."""
    if not pa.types.is_struct(kind):
        return is_one(kind)
    return any(_has_inside(field.type, is_one) for field in kind)


def _fails(kind: Any) -> bool:
    types = pa.types
    if (types.is_timestamp(kind) and kind.tz is not None) or kind == pa.uuid():
        return True
    return types.is_uint64(kind) or types.is_floating(kind) or _has_nanoseconds(kind)


def _has_nanoseconds(kind: pa.DataType) -> bool:
    return (pa.types.is_timestamp(kind) or pa.types.is_time64(kind)) and kind.unit == "ns"


def _has_zoned_nanoseconds(kind: Any) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit == "ns" and kind.tz is not None
