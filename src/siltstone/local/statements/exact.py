"""Exact: types of which DuckDB, or Arrow behind it, has other values, so that none is carried.

    timestamp[ns] with a zone      duration[ns]      DuckDB keeps microseconds alone
    BIT                            TIME WITH TIME ZONE      Arrow has bytes, and no zone

The same is true of whatever has one of them inside. A key that lost its nanoseconds is the key of
another row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

import pyarrow as pa

from siltstone.errors import RequestError
from siltstone.query.sql.statement import LOST_KEY
from siltstone.query.sql.writes.constants import Given, LiteralValue, value_of
from siltstone.query.sql.writes.statements import ValueText

_MICROSECONDS = (dt.datetime, dt.timedelta)
"""Python's types, whose values lose nothing."""


def is_cut(kind: pa.DataType) -> bool:
    """Say whether DuckDB cuts values of a type."""
    if pa.types.is_timestamp(kind):
        return kind.unit == "ns" and kind.tz is not None
    if pa.types.is_duration(kind):
        return kind.unit == "ns"
    return any(is_cut(kind.field(place).type) for place in range(kind.num_fields))


def refuse_cut(statement: str, names: Iterable[str], fields: pa.Schema, instead: str) -> None:
    """Refuse a statement of which DuckDB would carry values of some columns, if it cuts them.

    Raises:
        RequestError: It cuts those of a column, which it names, and `instead`, the method to use.
    """
    for name in names:
        kind = fields.field(name).type
        if is_cut(kind):
            raise RequestError(
                f"{statement} would lose nanoseconds of column {name!r}, {kind}: DuckDB keeps"
                f" microseconds of it; use {instead}"
            )


def has_zoned_time(kind: pa.DataType) -> bool:
    """Say whether a type is a time with a zone, or has one inside."""
    if pa.types.is_timestamp(kind):
        return kind.tz is not None
    return any(has_zoned_time(kind.field(place).type) for place in range(kind.num_fields))


def refuse_lost(statement: str, schema: pa.Schema) -> None:
    """Refuse rows of a query that came with other values than DuckDB had.

    Raises:
        RequestError: A column has a type of DuckDB's that Arrow has not.
    """
    for field in schema:
        lost = (field.metadata or {}).get(LOST_KEY)
        if lost is not None:
            raise RequestError(
                f"{statement} would have other values of column {field.name!r}, of DuckDB's type"
                f" {lost.decode()}: cast it, to VARCHAR"
            )


def carried(
    names: Sequence[str], values: Iterable[Sequence[ValueText]], given: Given
) -> dict[str, None]:
    """Return the columns for which rows have a value that may have nanoseconds."""
    return {
        name: None
        for row in values
        for name, each in zip(names, row, strict=False)
        if not _is_plain(each, given)
    }


def _is_plain(part: ValueText, given: Given) -> bool:
    if part.constant is None:
        return not part.text
    value = value_of(part.constant, given)
    is_literal = isinstance(part.constant, LiteralValue)
    return value is None or (not is_literal and type(value) in _MICROSECONDS)
