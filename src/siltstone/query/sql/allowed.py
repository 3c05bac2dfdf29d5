"""Allowed: which statements `sql` runs: one query, or the plan of one, with no lasting effect.

A DuckDB is kept for the next statement (see `duckdbs.instances`), so nothing that a statement does
may be seen by another one. No query writes; but a few functions change the DuckDB that runs them,
take places in memory as numbers, or run another text, which nobody has checked. DuckDB 1.5 also
ends the process if its log is to be a file and files are forbidden.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from siltstone.errors import ReadOnlyError, RequestError
from siltstone.query.sql.duckdbs.versions import kind_of

if TYPE_CHECKING:
    import duckdb

_WRITING = {"INSERT", "UPDATE", "DELETE", "MERGE_INTO", "CREATE", "DROP", "ALTER"}
_REFUSED = frozenset(  # of DuckDB 1.5 and 2
    {
        "add_grammar_extension",
        "arrow_scan",
        "arrow_scan_dumb",
        "checkpoint",
        "create_external_resource",
        "deregister_external_resource",
        "destroy_external_resource",
        "disable_logging",
        "disable_profiling",
        "enable_logging",
        "enable_profiling",
        "force_checkpoint",
        "json_execute_serialized_sql",
        "pandas_scan",
        "python_arrow_scan",
        "python_map_function",
        "query",
        "register_external_resource",
        "register_external_resource_type",
        "remove_grammar_extension",
        "truncate_duckdb_logs",
        "write_log",
    }
)
_MAY_CALL = re.compile("|".join(_REFUSED), re.IGNORECASE)
"""No name can be written in another way: DuckDB has no escapes for its letters."""
TEXT_BYTES_MAX = 1 << 20
MADE_LENGTH_MAX = 64 << 20
"""Of a query that is made for a statement that writes: each of its values has a cast, and more."""
GAP = r"(?:\s|--[^\n\r]*+[\n\r]|/\*(?:[^*]|\*(?!/))*+\*/)*+"
_EXPLAIN = re.compile(
    rf"{GAP}explain\b(?:{GAP}\(\s*(?:analyze|format)\b[^()]*\)|{GAP}analyze\b)?", re.IGNORECASE
)


def explained(sql: str) -> str:
    """Return the statement that an EXPLAIN is for; of any other statement the whole of it."""
    found = _EXPLAIN.match(sql)  # at its begin alone: a search takes the square of its blanks
    return sql[found.end() :] if found else sql


def refuse_all_but_one_query(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse what is not one query, or the plan of one, and calls of what outlives a statement.

    Raises:
        RequestError: It is something else.
        duckdb.Error: DuckDB cannot read it.
    """
    kind, query = _kind(connection, sql), explained(sql)
    if kind == "EXPLAIN":
        of = "an unknown statement" if query is sql else _kind(connection, query)
        if of != "SELECT":
            raise RequestError(f"EXPLAIN is for a query, and this is of {of}")
    elif kind != "SELECT":
        _refuse_kind(kind)
    if _MAY_CALL.search(query):
        _refuse_calls(connection, query)


def _refuse_kind(kind: str) -> NoReturn:
    if kind in _WRITING:
        raise ReadOnlyError(
            f"snapshots and sql_reader() only read, and this is {kind}: sql() of a store or of a"
            " transaction writes"
        )
    if kind == "TRANSACTION":
        raise RequestError("BEGIN, COMMIT and ROLLBACK are not offered: use db.transaction()")
    raise RequestError(f"sql() reads and writes tables, and this is {kind}, which is not offered")


def _kind(connection: duckdb.DuckDBPyConnection, sql: str) -> str:
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise RequestError(f"sql() runs one statement; this text has {len(statements)}")
    kind = kind_of(statements[0])
    if kind == "MULTI":
        raise RequestError("sql() runs one statement; DuckDB makes several of this text")
    return kind


def _refuse_calls(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Refuse a query that calls one of these functions, as DuckDB reads it: a text may have one."""
    ((found,),) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    try:
        tree = json.loads(found)
    except RecursionError:
        tree = {"error": True}
    if tree["error"]:
        names = ", ".join(sorted({each.lower() for each in _MAY_CALL.findall(query)}))
        raise RequestError(f"a statement of this form has none of the words {names}")
    for name in sorted(_called(tree)):
        if name in _REFUSED:
            raise RequestError(
                f"no statement calls {name}(..): it changes or leaves more than its result"
            )


def _called(tree: Any) -> Iterator[str]:
    """Yield the functions that a tree of DuckDB calls, with its own stack: it may be deep."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if isinstance(name := node.get("function_name"), str):
                yield name.lower()
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)
