"""Fitted: values as DuckDB gives them, in the types of columns that it has no types for.

duration   an interval of days and nanoseconds        uuid   its text
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa

from siltstone.errors import SchemaMismatchError

_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DAY_NS = 86_400 * _NS["s"]


def fitted(rows: pa.Table, fields: pa.Schema, before: int = 0) -> pa.Table:
    """Return rows in which columns of `fields` have a type that a table takes for theirs.

    `before` them the statement has so many.

    Raises:
        SchemaMismatchError: A duration has months, or parts of its unit.
    """
    for place, name in enumerate(rows.column_names):
        kind, column = fields.field(name).type, rows.column(place)
        if pa.types.is_interval(column.type) and pa.types.is_duration(kind):
            made = _durations(name, column, kind, before)
        elif kind == pa.uuid() and pa.types.is_string(column.type):
            made = _uuids(column)
        else:
            continue
        rows = rows.set_column(place, pa.field(name, made.type), made)
    return rows


def _durations(name: str, column: pa.ChunkedArray[Any], kind: Any, before: int) -> pa.Array[Any]:
    found = list[int | None]()
    for row, value in enumerate(column.to_pylist()):
        if value is None:
            found.append(None)
            continue
        whole, rest = divmod(value.days * _DAY_NS + value.nanoseconds, _NS[kind.unit])
        if value.months or rest:
            raise SchemaMismatchError(
                f"row {before + row + 1} of the statement: column {name!r} is {kind}, not {value!r}"
            )
        found.append(whole)
    return pa.array(found, pa.int64()).cast(kind)


def _uuids(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    values = [None if each is None else UUID(each).bytes for each in column.to_pylist()]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
