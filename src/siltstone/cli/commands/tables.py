"""Table commands: init, info, tables, schema, create."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from siltstone.cli.arguments import AsOf, Db, DryRun, LocalDb, Quiet, Table, Yes
from siltstone.cli.exits import UsageError
from siltstone.cli.output import Form, emit, emit_facts, emit_record
from siltstone.cli.sessions import (
    at_moment,
    confirm,
    is_remote,
    note,
    past,
    reading,
    writing,
)

if TYPE_CHECKING:
    pass


def init(db: LocalDb) -> None:
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
        found = [snapshot[name] for name in snapshot.tables()]
        lines = [(t.name, ",".join(t.primary_key), len(t.schema), t.count()) for t in found]
    emit(["table", "primary_key", "columns", "rows"], lines, form)


def schema(table: Table, db: Db, *, as_of: AsOf, form: Form) -> None:
    """Show the columns of a table."""
    with at_moment(db, as_of) as snapshot:
        found = snapshot[table]
        key = found.primary_key
        lines = [
            (f.name, str(f.type), f.nullable, key.index(f.name) + 1 if f.name in key else None)
            for f in found.schema
        ]
    emit(["column", "type", "nullable", "key"], lines, form)


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
    if not quiet:
        emit_record({"table": new_name, "seq": receipt.seq}, form)


def drop(
    table: Table,
    db: Db,
    yes: Yes = False,
    dry_run: DryRun = False,
    *,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Drop a table. Its past stays readable until vacuum deletes it."""
    if not _is_confirmed(db, table, "Drop", form, yes=yes, dry_run=dry_run):
        return
    with writing(db) as store:
        receipt = store.drop_table(table)
    if not quiet:
        emit_record({"table": table, "seq": receipt.seq}, form)


def truncate(
    table: Table,
    db: Db,
    yes: Yes = False,
    dry_run: DryRun = False,
    *,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Delete all rows of a table. Its past stays readable until vacuum deletes it."""
    if not _is_confirmed(db, table, "Truncate", form, yes=yes, dry_run=dry_run):
        return
    with writing(db) as store:
        receipt = store[table].truncate()
    if not quiet:
        emit_record({"table": table, "seq": receipt.seq}, form)


def _is_confirmed(db: Db, table: str, verb: str, form: Form, *, yes: bool, dry_run: bool) -> bool:
    """Say whether to go on: the user agreed, and did not only want to look."""
    with reading(db) as store:
        rows = store[table].count()
    if dry_run:
        emit_record({"table": table, "rows": rows}, form)
        return False
    confirm(f"{verb} the table {table!r} with {rows} rows?", yes=yes)
    return True
