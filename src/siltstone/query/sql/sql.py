"""SQL: one statement, run by DuckDB over the tables of one snapshot.

    find the tables it mentions ─▶ register them ─▶ lock DuckDB's settings ─▶ run ─▶ Arrow

DuckDB runs in memory, for this one statement. It has no access to files, the network or Python
variables, and its settings are locked; statements that are not queries are refused. DuckDB does not
stop a statement by itself: another thread checks the deadline.
DuckDB pushes filters and columns into the scans of the tables. A table in a namespace has its parts
as name (`sales.orders`) and its whole name in quotes (`"sales.orders"`).
"""

# ruff: noqa: A002 (`filter` is pyarrow's word)

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone import deadline, extras, threads
from siltstone.errors import RequestError, SiltstoneError, TableNotFoundError
from siltstone.query.sql.dataset import Filter, Scannable, SnapshotDataset
from siltstone.query.sql.result import Result

if TYPE_CHECKING:
    import duckdb

TEXT_BYTES_MAX = 1 << 20
LOOK_S = 0.1
"""How often the other thread checks."""
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",  # what does not fit in memory is refused, not spilled beside the caller
}
_EXPLAIN = re.compile(r"\s*explain(\s+analyze)?\b", re.IGNORECASE)
_MISSING = re.compile(r"Table with name (.+?) does not exist!")
_SHOW = re.compile(r"\s*show\b", re.IGNORECASE)

Parameters = Sequence[object] | Mapping[str, object] | None


@dataclass
class _Watched:
    """A table whose errors are kept: DuckDB would turn them into a text of its own.

    DuckDB reads it in threads of its own, which have no deadline: `end` is that of the statement.
    """

    source: Scannable
    failures: list[Exception] = field(default_factory=list[Exception])
    end: deadline.Deadline | None = field(default_factory=deadline.current)

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def scan(
        self, columns: Sequence[str] | None, filter: Filter, limit: int | None
    ) -> pa.RecordBatchReader:
        try:
            with deadline.within(self.end):
                reader = self.source.scan(columns, filter, limit)
        except Exception as error:
            self.failures.append(error)
            raise
        return pa.RecordBatchReader.from_batches(reader.schema, self._pull(reader))

    def _pull(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            while (batch := self._next(reader)) is not None:
                yield batch
        except Exception as error:
            self.failures.append(error)
            raise
        finally:
            reader.close()

    def _next(self, reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
        with deadline.within(self.end):
            return next(iter(reader), None)


def run(
    sql: str,
    tables: Callable[[str], Scannable | None],
    names: Sequence[str],
    parameters: Parameters = None,
    *,
    check: Callable[[], object] = lambda: None,
) -> Result:
    """Run one query; stop it when the deadline of this thread is over.

    Args:
        sql: A SELECT or EXPLAIN in DuckDB's dialect, or SHOW TABLES, DESCRIBE, SUMMARIZE.
        tables: Returns a table by its name; called for the tables in the statement.
        names: All names that `tables` accepts.
        parameters: For `?` or `$1` a sequence, for `$name` a mapping.
        check: Raises if the query must stop; another thread calls it now and then.

    Raises:
        RequestError: DuckDB refuses the statement, it is not one query, or it took too long.
        UnavailableError: DuckDB is not installed.
    """
    duckdb = extras.imported("duckdb", "sql()", "DuckDB", "sql")  # half a second
    if not isinstance(sql, str):
        raise RequestError(f"a statement must be a string; got {sql!r}")
    if len(sql) > TEXT_BYTES_MAX:
        raise RequestError(f"the statement is longer than {TEXT_BYTES_MAX} characters")
    watched: list[_Watched] = []
    connection = duckdb.connect(":memory:", config=_SETTINGS)
    try:
        with _ended(connection, check):
            _refuse_all_but_one_query(connection, sql)
            for name in _mentioned(sql, names):
                source = tables(name)
                if source is None:
                    raise TableNotFoundError(name, names)
                watched.append(_Watched(source))
                _register(connection, name, watched[-1])
            connection.execute("SET lock_configuration = true")
            return Result(_fetch(connection, sql, parameters))
    except duckdb.Error as error:
        raise _refusal(str(error), watched, names) from error
    finally:
        connection.close()


def _refusal(text: str, watched: Sequence[_Watched], names: Sequence[str]) -> Exception:
    """Return the error of a statement that DuckDB ended: a table's own, or one of its words."""
    for table in watched:
        if table.failures:
            return table.failures[0]
    missing = _MISSING.search(text)
    if missing is not None:
        return TableNotFoundError(missing[1], names)
    return RequestError(f"DuckDB refuses the statement: {text}")


@contextmanager
def _ended(connection: duckdb.DuckDBPyConnection, check: Callable[[], object]) -> Generator[None]:
    """End what the connection runs in the block when `check` raises, or time is over.

    Raises:
        SiltstoneError: What the one raised, or the other.
    """
    reasons: list[SiltstoneError] = []
    end, is_done = deadline.current(), threading.Event()

    def look() -> None:
        while not is_done.wait(LOOK_S):
            try:
                check()
                if end is not None:
                    end.check()
            except SiltstoneError as reason:
                reasons.append(reason)
                connection.interrupt()  # and again: between two steps it is not heard

    looking = threading.Thread(target=look, name="siltstone-sql", daemon=True)
    threads.start(looking)
    try:
        yield
    except Exception as error:
        if reasons:
            raise reasons[0] from error
        raise
    finally:
        is_done.set()
        looking.join()


def _refuse_all_but_one_query(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise RequestError(f"sql() runs one statement; this text has {len(statements)}")
    kind = statements[0].type.name
    if kind not in ("SELECT", "EXPLAIN"):
        raise RequestError(f"sql() only reads, and this is {kind}; write through a transaction")


def _fetch(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters) -> pa.Table:
    cursor = connection.execute(sql, parameters)
    kinds = [str(column[1]) for column in cursor.description or ()]
    table = cursor.to_arrow_table()
    for place, kind in enumerate(kinds):
        if kind == "HUGEINT":  # the sum of whole numbers; Arrow has no such type
            table = _without_hugeint(table, place)
    return table


def _without_hugeint(table: pa.Table, place: int) -> pa.Table:
    try:
        column = table.column(place).cast(pa.int64())
    except pa.ArrowInvalid:
        return table  # too large for int64: the decimal stays
    return table.set_column(place, table.schema.field(place).with_type(pa.int64()), column)


def _register(connection: duckdb.DuckDBPyConnection, name: str, source: Scannable) -> None:
    connection.register(name, SnapshotDataset(source))
    namespace, dot, last = name.rpartition(".")
    if dot and namespace and last and "." not in namespace:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(namespace)}")
        view = f"{_quoted(namespace)}.{_quoted(last)}"
        connection.execute(f"CREATE VIEW {view} AS FROM {_quoted(name)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _mentioned(sql: str, names: Sequence[str]) -> list[str]:
    """Return the names that the statement mentions, maybe more, never less.

    Raises:
        RequestError: Two of them differ only by case, which DuckDB does not tell apart.
    """
    if _SHOW.match(sql):
        return _distinct(names)
    explained = _EXPLAIN.match(sql)  # at its begin alone: a search takes the square of its blanks
    written = _tables_of(sql[explained.end() :] if explained else sql)
    if written is None:  # sqlglot does not know all of DuckDB's language: go by the text
        lowered = sql.replace('""', '"').lower()
        return _distinct([name for name in names if _is_in(lowered, name.lower())])
    exact = [name for name in names if name in written]
    folded = {text.lower() for text in written} - {name.lower() for name in exact}
    return _distinct([*exact, *(name for name in names if name.lower() in folded)])


def _tables_of(sql: str) -> set[str] | None:
    """Return the names of tables as they are written, parts joined by dots; None if unreadable."""
    import sqlglot  # noqa: PLC0415 (0.3 s)
    from sqlglot import errors, exp  # noqa: PLC0415

    try:
        trees = sqlglot.parse(sql, dialect="duckdb")
    except (errors.SqlglotError, RecursionError):
        return None
    found: set[str] = set()
    for tree in trees:
        if tree is None or isinstance(tree, exp.Command):
            return None
        for table in tree.find_all(exp.Table):
            parts = [part.name for part in table.parts]
            found.add(".".join(parts))
            if parts[0] in ("main", "memory"):
                found.add(parts[-1])
    return found


def _is_in(text: str, name: str) -> bool:
    return all(part in text for part in name.split("."))


def _distinct(names: Sequence[str]) -> list[str]:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise RequestError(
                f"DuckDB does not tell {other!r} from {name!r}; rename one, or use scan()"
            )
    return list(seen.values())
