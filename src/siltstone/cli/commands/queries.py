"""Query commands: query, changes, diff, log."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated

import typer

from siltstone.cli.arguments import MOMENT, AsOf, At, Db, Tag, moment_of
from siltstone.cli.exits import UsageError
from siltstone.cli.listings import COMMIT_FACTS, commits_of
from siltstone.cli.output import Form, Row, emit, emit_arrow, rows_of
from siltstone.cli.sessions import at_moment, past, reading, writing
from siltstone.errors import ReadOnlyError

if TYPE_CHECKING:
    import pyarrow as pa

    from siltstone.api.results import TableDiff


def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One SQL statement; - reads it from stdin.")
    ],
    db: Db,
    write: Annotated[
        bool, typer.Option("--write", help="Run a statement that writes, as one commit.")
    ] = False,
    *,
    as_of: AsOf,
    form: Form,
) -> None:
    """Run a SQL query on one snapshot, or with --write a write.

    On a store of this machine it reads files, too: from 'orders.csv'. A table of that name wins.
    """
    statement = sys.stdin.read() if sql == "-" else sql
    if write:
        found = _written(db, as_of, statement)
    else:
        from siltstone.cli.files import rows_named
        from siltstone.local.snapshot import sql_with

        try:
            with at_moment(db, as_of) as snapshot:
                found = sql_with(snapshot, statement, rows_named).arrow()
        except ReadOnlyError as error:
            raise UsageError("this statement writes: say --write") from error
    emit_arrow(found.to_reader(), form)


def _written(db: Db, as_of: AsOf, statement: str) -> pa.Table:
    """Run a statement that may write and may name files of the user."""
    from siltstone.cli.files import rows_named
    from siltstone.local.store import LocalStore

    if as_of != AsOf():
        raise UsageError("the past is read, not written: --write takes no --at, --seq or --tag")
    with writing(db) as store:
        if isinstance(store, LocalStore):
            return store.sql_with(statement, rows_named).arrow()
        return store.sql(statement).arrow()


def changes(
    db: Db,
    since: Annotated[int, typer.Option(min=0, help="Print changes after this seq.")] = 0,
    until: Annotated[
        int | None, typer.Option(min=0, help="Print changes up to this seq. Default: all.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", help="Print changes of this table; repeatable."),
    ] = None,
    at: At = None,
    tag: Tag = None,
    *,
    form: Form,
) -> None:
    """Print changes in commit order. --at and --tag set the end, like --until."""
    with reading(db) as store:
        if until is not None or at is not None or tag is not None:
            with past(store, AsOf(at, until, tag)) as snapshot:
                until = snapshot.seq
        readers = store.changes(since, until, table or None)
        if len(readers) == 1:
            emit_arrow(next(iter(readers.values())), form)
        else:
            _emit_all(readers, form)


def _emit_all(readers: dict[str, pa.RecordBatchReader], form: Form) -> None:
    """Print the changes of several tables; their columns differ, so a row is its own value."""
    streams = [_named(name, reader) for name, reader in readers.items()]
    rows: Iterable[Row] = heapq.merge(*streams, key=itemgetter(1))
    emit(["_table", "_seq", "_op", "row"], rows, form)


def _named(name: str, reader: pa.RecordBatchReader) -> Iterator[Row]:
    columns = reader.schema.names[2:]
    for seq, op, *values in rows_of(reader):
        yield name, seq, op, dict(zip(columns, values, strict=True))


def diff(
    a: Annotated[str, typer.Argument(metavar="FROM", help=MOMENT, show_default=False)],
    db: Db,
    b: Annotated[
        str | None, typer.Argument(metavar="[TO]", help="Default: now.", show_default=False)
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", help="Look at this table; repeatable. Default: all."),
    ] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="Print the rows that differ, old and new.")
    ] = False,
    *,
    form: Form,
) -> None:
    """Count what differs between two moments, or print the rows."""
    with reading(db) as store:
        found = store.diff(moment_of(a), None if b is None else moment_of(b), table or None)
        if not rows:
            columns = ["table", "added", "removed", "changed"]
            emit(columns, [(t.name, t.added, t.removed, t.changed) for t in found.values()], form)
        elif len(found) == 1:
            emit_arrow(next(iter(found.values())).scan(), form)
        else:
            emit(["_table", "_change", "key", "_old", "_new"], _different(found), form)


def _different(found: Mapping[str, TableDiff]) -> Iterator[Row]:
    """Yield what differs of several tables; their columns differ, so a key is its own value."""
    for name, each in found.items():
        if len(each):
            reader = each.scan()
            columns = reader.schema.names[1:-2]
            for change, *key, old, new in rows_of(reader):
                yield name, change, dict(zip(columns, key, strict=True)), old, new


def log(
    db: Db, limit: Annotated[int, typer.Option("--limit", "-n", min=0)] = 20, *, form: Form
) -> None:
    """Print the newest commits."""
    with reading(db) as store:
        lines = commits_of(store, limit)
    emit(COMMIT_FACTS, lines, form)
