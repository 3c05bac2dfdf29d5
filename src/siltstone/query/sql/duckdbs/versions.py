"""Versions of DuckDB: what 1.5 and 2 do in different ways, and the rest of `sql` need not know.

                       1.5                                 2
    rows               `execute`: `sql` computes all       `sql`: what `execute` returns is
                       rows first if it has parameters     copied first, with a warning
    threads            `threads`                           eight more for files
    unknown statement  has the type "???"                  its type is a ValueError

They also push other filters: see `shielded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

_FILE_THREADS = {"async_threads": 0}  # no statement reads a file; what it spills it writes itself


def settings() -> dict[str, int]:
    """Return the settings that only the installed version of DuckDB has and needs."""
    return {} if _is_before_2() else dict(_FILE_THREADS)


def kind_of(statement: duckdb.Statement) -> str:
    """Return what kind of statement it is, as `SELECT`; `no query` if DuckDB has no name for it."""
    try:
        name = statement.type.name
    except ValueError:
        return "no query"
    return "no query" if name == "???" else name


def begun(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Any, batch_rows: int
) -> tuple[list[str], pa.RecordBatchReader]:
    """Run one query up to its first rows; by then DuckDB has pushed its filters.

    Returns:
        The types of its columns as DuckDB names them, and its rows, at most `batch_rows` at a time.
    """
    if _is_before_2():
        ran = connection.execute(sql, parameters)
    else:
        ran = connection.sql(sql, params=parameters)
    kinds = [str(column[1]) for column in ran.description or ()]
    return kinds, ran.to_arrow_reader(batch_rows)


def _is_before_2() -> bool:
    import duckdb  # noqa: PLC0415 (it is there)

    return int(duckdb.__version__.split(".")[0]) < 2
