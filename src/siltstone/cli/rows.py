"""Row commands: upsert, insert, get, scan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from siltstone.cli.arguments import AsOf, Db, Quiet, Table
from siltstone.cli.exits import NotFoundError, UsageError
from siltstone.cli.output import Form, emit_arrow, emit_record
from siltstone.cli.sessions import at_moment, writing

if TYPE_CHECKING:
    from siltstone.api.tables import SnapshotTable

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="CSV, JSON, NDJSON, Parquet or Arrow, by the file's ending; - is NDJSON on stdin.",
        allow_dash=True,
        show_default=False,
    ),
]
Null = Annotated[list[str] | None, typer.Option(help="A text that means null in CSV; repeatable.")]


def upsert(
    table: Table, file: File, db: Db, null: Null = None, *, form: Form, quiet: Quiet = False
) -> None:
    """Insert or replace the rows of a file in one transaction."""
    _write(db, table, file, null or (), "upsert", form, quiet=quiet)


def insert(
    table: Table, file: File, db: Db, null: Null = None, *, form: Form, quiet: Quiet = False
) -> None:
    """Insert the rows of a file in one transaction. If a key exists already, insert none."""
    _write(db, table, file, null or (), "insert", form, quiet=quiet)


def _write(
    db: str,
    name: str,
    file: Path,
    nulls: Sequence[str],
    verb: str,
    form: Form,
    *,
    quiet: bool,
) -> None:
    from siltstone.cli.files import input_rows

    with writing(db) as store:
        table = store[name]
        rows = input_rows(file, table.schema, nulls)
        if verb == "upsert":
            receipt = table.upsert(rows)
        else:
            receipt = table.insert(rows) if table.primary_key else table.append(rows)
    if not quiet:
        record = {"seq": receipt.seq, "rows": receipt.rows, "transaction": receipt.transaction_id}
        emit_record(record, form)


def get(
    table: Table,
    key: Annotated[
        list[str],
        typer.Argument(metavar="KEY...", help="One value for each key column.", show_default=False),
    ],
    db: Db,
    *,
    as_of: AsOf,
    form: Form,
) -> None:
    """Print the row with a key; exit code 3 if there is none."""
    with at_moment(db, as_of) as snapshot:
        found = snapshot[table]
        row = found.get(_key_of(found, key))
    if row is None:
        raise NotFoundError(f"{table} has no row with the key {' '.join(key)!r}")
    emit_record(row, form)


def _key_of(table: SnapshotTable, texts: Sequence[str]) -> object:
    """Return the key that the arguments spell, in the types of the key columns."""
    import pyarrow as pa

    names = table.primary_key
    if not names:
        raise UsageError(f"{table.name!r} is a plain table, without a key; use scan")
    if len(names) != len(texts):
        raise UsageError(
            f"the key of {table.name!r} is {', '.join(names)}; give {len(names)} values"
        )
    values: list[object] = []
    for name, text in zip(names, texts, strict=True):
        kind = table.schema.field(name).type
        try:
            values.append(pa.scalar(text).cast(kind).as_py())
        except pa.ArrowInvalid:
            raise UsageError(f"{name} must be a value of type {kind}; got {text!r}") from None
    return values[0] if len(values) == 1 else tuple(values)


def scan(
    table: Table,
    db: Db,
    columns: Annotated[
        str | None, typer.Option(help="The columns to print, separated by commas.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--filter", "-f", help="A SQL boolean expression.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0)] = None,
    *,
    as_of: AsOf,
    form: Form,
) -> None:
    """Print the rows of a table, in no particular order."""
    shown = None if columns is None else columns.split(",")
    with at_moment(db, as_of) as snapshot:
        emit_arrow(snapshot[table].scan(shown, where, limit), form)
