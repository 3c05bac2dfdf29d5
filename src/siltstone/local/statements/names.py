"""Names: the tables and columns that a statement means, as DuckDB tells names apart."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from siltstone.api.tables import TransactionTable
from siltstone.errors import RequestError, SchemaMismatchError, no_such
from siltstone.query.sql.shielded import folded
from siltstone.query.sql.writes.statements import Target


def meant_by(target: Target) -> str:
    """Return the name of a table without DuckDB's catalog, `memory`, and its namespace `main`."""
    parts = target.parts
    if len(parts) > 1 and parts[0] == "memory":
        parts = parts[1:]
    return parts[-1] if len(parts) == 2 and parts[0] == "main" else ".".join(parts)


def name_among(target: Target, names: Sequence[str]) -> str | None:
    """Return the one of some names that a statement means, as DuckDB tells names apart."""
    meant = [".".join(target.parts), meant_by(target)]
    for each in meant:
        if each in names:
            return each
    low = {folded(each) for each in meant}
    return next((name for name in names if folded(name) in low), None)


def column_of(name: str, fields: pa.Schema) -> str:
    """Return the column that a statement means by a name.

    Raises:
        SchemaMismatchError: There is none.
    """
    if name in fields.names:
        return name
    for each in fields.names:
        if folded(each) == folded(name):
            return each
    raise SchemaMismatchError(no_such("column", name, fields.names))


def columns_of(names: Sequence[str], fields: pa.Schema) -> list[str]:
    """Return the columns that a statement means by some names; see `column_of`.

    Raises:
        SchemaMismatchError: One is there twice.
    """
    found = [column_of(name, fields) for name in names]
    for name in found:
        if found.count(name) > 1:
            raise SchemaMismatchError(f"the statement names column {name!r} twice")
    return found


def require_key(table: TransactionTable, statement: str) -> tuple[str, ...]:
    """Return the key of a table.

    Raises:
        RequestError: It has none, and the statement needs one.
    """
    key = table.primary_key
    if not key:
        raise RequestError(
            f"{statement} needs a table with a primary key, and {table.name!r} has none: INSERT,"
            " TRUNCATE, and DELETE of what a filter finds work there, and update_where()"
        )
    return key
