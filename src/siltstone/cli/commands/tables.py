"""Table commands: init, info, tables, schema, create, rename, drop, truncate, undo."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siltstone.cli.arguments import MOMENT, AsOf, Consent, Db, NewDb, Quiet, Table, moment_of
from siltstone.cli.exits import UsageError
from siltstone.cli.listings import COLUMN_FACTS, TABLE_FACTS, columns_in, tables_of
from siltstone.cli.output import Form, cell, emit, emit_facts, emit_record, rows_of
from siltstone.cli.sessions import agreed, at_moment, is_remote, note, past, reading, writing
from siltstone.errors import ConflictError, RequestError

if TYPE_CHECKING:
    from siltstone.store import Store


_SHOWN = 5


def init(db: NewDb) -> None:
    """Create an empty store. An existing store is left unchanged."""
    from siltstone.store import connect

    if is_remote(db):
        raise UsageError(f"{db.uri} is a server, which has its store already")
    with connect(db.uri, background=False) as store:
        note(f"{store.path} is a store with {len(store.tables())} tables")


def info(db: Db, *, as_of: AsOf, form: Form) -> None:
    """Show a summary of the store."""
    with reading(db) as store, past(store, as_of) as snapshot:
        newest = store.log(1)
        facts = {
            "path": str(store.path),
            "seq": snapshot.seq,
            "tables": len(snapshot.tables()),
            "rows": sum(snapshot[name].count() for name in snapshot.tables()),
            "tags": len(store.tags()),
            "last_commit": newest[0].time if newest else None,
        }
    emit_facts(facts, form)


def tables(db: Db, *, as_of: AsOf, form: Form) -> None:
    """List the tables with their keys and row counts."""
    with at_moment(db, as_of) as snapshot:
        lines = tables_of(snapshot)
    emit(TABLE_FACTS, lines, form)


def schema(table: Table, db: Db, *, as_of: AsOf, form: Form) -> None:
    """Show the columns of a table."""
    with at_moment(db, as_of) as snapshot:
        lines = columns_in(snapshot, table)
    emit(COLUMN_FACTS, lines, form)


def rename(
    table: Table,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", show_default=False)],
    db: Db,
    *,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Rename a table. Older snapshots know it by its old name."""
    with writing(db) as store:
        receipt = store.rename_table(table, new_name)
    emit_record({"table": new_name, "seq": receipt.seq}, form, quiet=quiet)


def drop(table: Table, db: Db, *, consent: Consent, form: Form, quiet: Quiet = False) -> None:
    """Drop a table. Its past stays readable until vacuum deletes it."""
    if _is_agreed(db, table, "Drop", form, consent):
        with writing(db) as store:
            receipt = store.drop_table(table)
        emit_record({"table": table, "seq": receipt.seq}, form, quiet=quiet)


def truncate(table: Table, db: Db, *, consent: Consent, form: Form, quiet: Quiet = False) -> None:
    """Delete all rows of a table. Its past stays readable until vacuum deletes it."""
    if _is_agreed(db, table, "Truncate", form, consent):
        with writing(db) as store:
            receipt = store[table].truncate()
        emit_record({"table": table, "seq": receipt.seq}, form, quiet=quiet)


def _is_agreed(db: Db, table: str, verb: str, form: Form, consent: Consent) -> bool:
    with reading(db) as store:
        rows = store[table].count()
    question = f"{verb} the table {table!r} with {rows} rows?"
    return agreed(question, {"table": table, "rows": rows}, form, consent)


def undo(
    table: Table,
    to: Annotated[str, typer.Option(metavar="MOMENT", help="What the table was then. " + MOMENT)],
    db: Db,
    until: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="The last commit to undo. Default: the only one."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also undo what others wrote since.")
    ] = False,
    *,
    consent: Consent,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Put a table back to what it was, by a new commit. Also a table that was dropped.

    It first shows how many rows and the first of them. It refuses to undo what others wrote.
    """
    moments: dict[str, Any] = {
        "to": moment_of(to),
        "until": None if until is None else moment_of(until),
    }
    try:
        with writing(db) as store:
            if force and until is None:
                moments["until"], force = store.seq, False  # not what comes while the user reads
            rows = _would_put_back(store, table, moments, force=force)
            question = f"Put back {rows} rows of the table {table!r}?"
            if not agreed(question, {"table": table, "rows": rows}, form, consent):
                return
            receipt = store.put_back(table, **moments, force=force)
    except ConflictError as error:
        raise _in_options(error) from error
    emit_record({"table": table, "seq": receipt.seq, "rows": receipt.rows}, form, quiet=quiet)


def _would_put_back(store: Store, table: str, moments: dict[str, Any], *, force: bool) -> int:
    """Try it, take it back, and show what would be undone; return how many rows it writes."""
    with store.transaction() as tx:
        try:
            rows = tx.put_back(table, **moments, force=force)
        finally:
            tx.rollback()
    try:
        found = store.diff(moments["to"], moments["until"], [table])[table]
    except RequestError:  # a plain table
        return rows
    since = f"{found.added} rows were added, {found.removed} removed, {found.changed} changed"
    note(f"since then {since}")
    for line in islice(found.scan(), 1):
        for row in rows_of([line.slice(0, _SHOWN)]):
            named = zip(line.schema.names, row, strict=True)
            told = [f"{name}={cell(value)}" for name, value in named if value is not None]
            note("  " + "  ".join(told))
    return rows


def _in_options(error: ConflictError) -> ConflictError:
    """Return an error in the words of the command line."""
    text = re.sub(r"until=( ?)", r"--until ", str(error)).replace("force=True", "--force")
    return ConflictError(error.table, error.key, error.read_seq, error.written_seq, explained=text)
