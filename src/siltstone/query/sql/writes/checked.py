"""Checked: the text of a statement that writes is read by DuckDB, which shows what is wrong."""

from __future__ import annotations

from collections.abc import Callable

from siltstone.errors import RequestError
from siltstone.options import SqlBounds
from siltstone.process.spares import Spares
from siltstone.query.sql.statement import Statement


def checked(sql: str, bounds: SqlBounds, check: Callable[[], object], spares: Spares) -> None:
    """Refuse a text that is not one statement of DuckDB's language.

    Raises:
        RequestError: DuckDB cannot read it, or makes several statements of it.
        UnavailableError: DuckDB is not installed.
    """
    statement = Statement(bounds, check, (), spares)
    try:
        with statement.step():
            found = len(statement.connection.extract_statements(sql))
    finally:
        statement.close()
    if found != 1:
        raise RequestError(f"sql() runs one statement; this text has {found}")
