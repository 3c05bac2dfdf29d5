"""Table commands: init, info, tables, schema, create."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from siltstone.cli.arguments import AsOf, Db, Table
from siltstone.cli.exits import UsageError
from siltstone.cli.output import Form, emit, emit_facts, emit_record
from siltstone.cli.sessions import at_moment, note, past, reading, writing


def init(db: Db) -> None:
    """Create an empty store. An existing store is left unchanged."""
    from siltstone.store import connect

    with connect(db, background=False) as store:
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


def create(
    table: Table,
    db: Db,
    schema: Annotated[
        Path | None,
        typer.Option(
            help='A file: JSON like {"id": "int64"}, or CSV, Parquet or Arrow with the columns.'
        ),
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option("--column", "-c", help="NAME:TYPE; repeat for each column.")
    ] = None,
    pk: Annotated[
        str,
        typer.Option(
            help="The key column, or columns separated by commas. Default: a plain table."
        ),
    ] = "",
    *,
    form: Form,
) -> None:
    """Create a table."""
    from siltstone.cli.schemas import columns_of, schema_of

    if (schema is None) is (not column):
        raise UsageError("give the columns either by --schema FILE or by --column NAME:TYPE")
    wanted = columns_of(column or []) if schema is None else schema_of(schema)
    with writing(db) as store:
        made = store.create_table(table, wanted, [name for name in pk.split(",") if name])
        record = {"table": made.name, "primary_key": ",".join(made.primary_key), "seq": store.seq}
    emit_record(record, form)
