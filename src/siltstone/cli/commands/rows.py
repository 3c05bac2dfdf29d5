"""Row commands: upsert, insert, append, get, scan, head, delete."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siltstone.choices import Missing
from siltstone.cli.arguments import AsOf, Consent, CsvForm, Db, Quiet, Table
from siltstone.cli.exits import NotFoundError, UsageError
from siltstone.cli.output import Form, emit_arrow, emit_record, rows_of
from siltstone.cli.sessions import agreed, at_moment, reading, writing
from siltstone.errors import SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from siltstone.api.readable import ReadableTable
    from siltstone.api.results import Receipt

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="CSV, TSV, JSON, NDJSON, Parquet or Arrow, by the file's ending, also with .gz or"
        " .zst; - is NDJSON on stdin.",
        allow_dash=True,
        show_default=False,
    ),
]
Columns = Annotated[str | None, typer.Option(help="The columns, separated by commas.")]
Filter = Annotated[
    str | None, typer.Option("--filter", "-f", help="A SQL boolean expression that rows match.")
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most this many rows.")]


def upsert(
    table: Table,
    file: File,
    db: Db,
    missing: Annotated[
        Missing,
        typer.Option(
            help="What becomes of columns that a row does not name: refuse the file, keep the"
            " values of rows that exist, or make them null."
        ),
    ] = "refuse",
    *,
    csv: CsvForm,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Insert or replace the rows of a file in one transaction."""

    def upserted(found: Any, rows: Any) -> Receipt:
        return found.upsert(rows, missing)

    try:
        _write(db, table, file, csv, upserted, form, quiet=quiet, tells_missing=True)
    except SchemaMismatchError as error:
        in_options = re.sub(r'missing="(\w+)"', r"--missing \1", str(error))
        raise SchemaMismatchError(in_options) from error


def insert(
    table: Table, file: File, db: Db, *, csv: CsvForm, form: Form, quiet: Quiet = False
) -> None:
    """Insert the rows of a file in one transaction. If a key exists already, insert none."""

    def inserted(found: Any, rows: Any) -> Receipt:
        return found.insert(rows) if found.primary_key else found.append(rows)

    _write(db, table, file, csv, inserted, form, quiet=quiet)


def _write(
    db: Db,
    name: str,
    file: Path,
    csv: CsvForm,
    verb: Callable[[Any, Any], Receipt],
    form: Form,
    *,
    quiet: bool,
    tells_missing: bool = False,
) -> None:
    from siltstone.cli.files import input_rows

    with writing(db) as store:
        table = store[name]
        rows = input_rows(file, table.schema, csv, tells_missing=tells_missing)
        receipt = verb(table, rows)
    _emit_receipt(receipt, form, quiet=quiet)


def _emit_receipt(receipt: Receipt, form: Form, *, quiet: bool) -> None:
    record = {"seq": receipt.seq, "rows": receipt.rows, "transaction": receipt.transaction_id}
    emit_record(record, form, quiet=quiet)


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
        rows = _rows_at(found, _key_of(found, key))
    if not rows.num_rows:
        raise NotFoundError(f"{table} has no row with the key {' '.join(key)!r}")
    (row,) = rows_of(rows.to_batches())
    emit_record(dict(zip(rows.column_names, row, strict=True)), form)


def _key_of(table: ReadableTable, texts: Sequence[str]) -> pa.Table:
    """Return the key that the arguments spell, in the types of the key columns, as one row."""
    import pyarrow as pa

    names = table.primary_key
    if not names:
        raise UsageError(f"{table.name!r} is a plain table, without a key; use scan")
    if len(names) != len(texts):
        raise UsageError(
            f"the key of {table.name!r} is {', '.join(names)}; give {len(names)}"
            f" value{'s' if len(names) > 1 else ''}"
        )
    schema, values = table.schema, dict[str, pa.Array]()
    for name, text in zip(names, texts, strict=True):
        kind = schema.field(name).type
        try:
            values[name] = pa.array([text], pa.string()).cast(kind)
        except pa.ArrowInvalid:
            raise UsageError(f"{name} must be a value of type {kind}; got {text!r}") from None
    return pa.table(values)


def _living(table: ReadableTable, texts: Sequence[str]) -> pa.Table:
    """Return the key that the arguments spell; a row has it."""
    from siltstone.api.filters import compares_columns

    given = " ".join(texts)
    try:
        wanted = _key_of(table, texts)
        if _rows_at(table, wanted).num_rows:
            return wanted
        raise NotFoundError(f"{table.name} has no row with the key {given!r}")
    except (UsageError, NotFoundError):
        if compares_columns(given, table.schema):
            why = f"no row has the key {given!r}; a filter is given by --filter"
            raise UsageError(why) from None
        raise


def _rows_at(table: ReadableTable, key: pa.Table) -> pa.Table:
    """Return the row with a key, if there is one."""
    try:
        return table.get_many(key)
    except ValueError:  # a time of nanoseconds, for which rows by key need pandas
        return table.scan(filter=_is_key(key)).read_all()


def _is_key(key: pa.Table) -> pc.Expression:
    import pyarrow.compute as pc

    parts = [pc.field(name) == key[name][0] for name in key.column_names]
    return functools.reduce(operator.and_, parts)


def scan(
    table: Table,
    db: Db,
    columns: Columns = None,
    where: Filter = None,
    limit: Limit = None,
    *,
    as_of: AsOf,
    form: Form,
) -> None:
    """Print the rows of a table, in no particular order."""
    with at_moment(db, as_of) as snapshot:
        emit_arrow(snapshot[table].scan(names_of(columns), where, limit), form)


def head(
    table: Table,
    db: Db,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many rows.")] = 10,
    *,
    as_of: AsOf,
    form: Form,
) -> None:
    """Print some rows of a table."""
    with at_moment(db, as_of) as snapshot:
        emit_arrow(snapshot[table].scan(limit=limit), form)


def names_of(columns: str | None) -> list[str] | None:
    """Return the columns of an option; None: all of them."""
    return None if columns is None else columns.split(",")


def delete(
    table: Table,
    key: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY...]", help="One value for each key column.")
    ] = None,
    *,
    db: Db,
    where: Filter = None,
    consent: Consent,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Delete the row with a key, or the rows that match --filter."""
    if bool(key) is (where is not None):
        raise UsageError("give either the key of a row, or --filter")
    with reading(db) as store:
        found = store[table]
        wanted = _living(found, key) if key else None
        rows = found.count(where) if wanted is None else 1
    would = {"table": table, "rows": rows}
    if not agreed(f"Delete {rows} rows of {table!r}?", would, form, consent):
        return
    with writing(db) as store:
        found = store[table]
        receipt = found.delete_where(where or "") if wanted is None else found.delete(wanted)
    _emit_receipt(receipt, form, quiet=quiet)
