"""Import commands: create, append: a table of rows from files, databases and other tables."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from siltstone.cli.arguments import CsvForm, Db, Quiet, Table
from siltstone.cli.exits import UsageError
from siltstone.cli.output import Form, emit, emit_record
from siltstone.cli.progress import progress_bar
from siltstone.cli.sessions import has_store, make_store, note, writing

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import pyarrow as pa

    from siltstone.cli.imports.importing import Import, Imported, ImportTarget
    from siltstone.cli.imports.parts import Source
    from siltstone.store import Store

_SOURCE = (
    "A file of rows by its ending (CSV, TSV, JSON, NDJSON, Parquet, Arrow, also .gz and .zst); a"
    " pattern in quotes; a directory of Parquet files; a table of Lance or Delta; FILE#TABLE of"
    " SQLite, DIR#TABLE of LanceDB; - is NDJSON on stdin."
)


def create(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]", help="Left out: all tables of a database.", show_default=False
        ),
    ] = None,
    *,
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
            help="The key column, or columns separated by commas. Default: that of SQLite, else a"
            " plain table."
        ),
    ] = "",
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help=f"Create the table with rows. {_SOURCE} The columns are those of them, unless"
            " --schema or --column gives them.",
            allow_dash=True,
        ),
    ] = None,
    csv: CsvForm,
    form: Form,
) -> None:
    """Create a table, empty or from rows. Without TABLE: all tables of a database.

    With --from the store is made, too, if there is none. Up to 128 MiB of rows are one transaction.
    More are several: if the command ends early, the same one goes on where it ended.
    """
    wanted = _columns(schema, column, is_needed=source is None)
    key = tuple(name for name in pk.split(",") if name)
    if source is None:
        if table is None:
            raise UsageError("say which TABLE to create")
        with writing(db) as store, store.transaction() as tx:
            tx.create_table(table, wanted, key)
        emit_record({"table": table, "primary_key": ",".join(key), "seq": tx.seq}, form)
        return
    plans = _plans(table, source, csv, wanted, key)
    if not has_store(db):
        _try(plans)
        make_store(db)
    with writing(db) as store:
        found = _import_all(store, plans)
    lines = [
        (target.name, ",".join(target.key), done.seq, done.rows)
        for (target, _), done in zip(plans, found, strict=True)
    ]
    names = ["table", "primary_key", "seq", "rows"]
    if table is None:
        emit(names, lines, form)
    else:
        emit_record(dict(zip(names, lines[0], strict=True)), form)


def _columns(schema: Path | None, column: list[str] | None, *, is_needed: bool) -> pa.Schema | None:
    from siltstone.cli.files import schema_of

    if (schema is not None and column) or (is_needed and schema is None and not column):
        raise UsageError("give the columns either by --schema FILE or by --column NAME:TYPE")
    if column:
        return _columns_named(column)
    return None if schema is None else schema_of(schema)


def _columns_named(given: Sequence[str]) -> pa.Schema:
    """Return the columns of NAME:TYPE arguments."""
    from siltstone.api.schemas import arrow_schema_of

    pairs = [text.partition(":") for text in given]
    if any(not (name and kind) for name, _, kind in pairs):
        raise UsageError(f"a column must be NAME:TYPE, like id:int64; got {list(given)}")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise UsageError(f"a column appears twice in {list(given)}")
    return arrow_schema_of({name: kind for name, _, kind in pairs})


def _plans(
    table: str | None, source: Path, csv: CsvForm, columns: pa.Schema | None, key: tuple[str, ...]
) -> list[tuple[ImportTarget, Source]]:
    """Return the tables to create, each with its rows."""
    from siltstone.cli.imports.importing import ImportTarget
    from siltstone.cli.imports.sources import all_sources, one_source

    if table is not None:
        found = one_source(source, csv)
        return [(ImportTarget(table, columns, key or found.key, creates=True), found)]
    if columns is not None or key:
        raise UsageError("--schema, --column and --pk are for one table: say which TABLE")
    sources = all_sources(source, csv)
    if not all(each.is_named for each in sources):
        raise UsageError(f"{source} has no names of tables: say which TABLE to create")
    return [(ImportTarget(each.name, None, each.key, creates=True), each) for each in sources]


def _try(plans: Sequence[tuple[ImportTarget, Source]]) -> None:
    """Create the tables in memory with their first rows, so that a bad file makes no store."""
    from siltstone.cli.imports.importing import Import
    from siltstone.store import connect

    for plan in plans:
        with connect(":memory:", background=False) as trial:
            Import(trial, *plan).write_first()


def _import_all(store: Store, plans: Sequence[tuple[ImportTarget, Source]]) -> list[Imported]:
    from siltstone.cli.imports.importing import Import

    are_several = len(plans) > 1
    runs = [Import(store, *plan, keeps_app=are_several) for plan in plans]
    found = [_run(run) for run in runs]
    for run in runs if are_several else ():
        run.forget()
    return found


def append(
    table: Table,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[SOURCE]", help=_SOURCE, allow_dash=True, show_default=False),
    ] = None,
    *,
    db: Db,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="SOURCE", help="The same as SOURCE.", allow_dash=True),
    ] = None,
    csv: CsvForm,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Append rows to a plain table. More than 128 MiB take several transactions.

    If such a command ends early, the same one goes on where it ended.
    """
    from siltstone.cli.imports.importing import Import, ImportTarget
    from siltstone.cli.imports.sources import one_source

    if (file is None) == (source is None):
        raise UsageError("say which rows to append: SOURCE, or --from SOURCE")
    given = source if file is None else file
    assert given is not None
    with writing(db) as store:
        store[table]  # it is told before a file is read
        done = _run(Import(store, ImportTarget(table), one_source(given, csv)), quiet=quiet)
    record = {"seq": done.seq, "rows": done.rows, "transaction": done.transaction_id}
    emit_record(record, form, quiet=quiet)


def _run(run: Import, *, quiet: bool = False) -> Imported:
    if run.place is not None and not quiet:
        note(f"{run.name} has {run.place.total:,} rows of it: going on behind them")
    with _told(run), progress_bar(f"import {run.name}", quiet=quiet) as progress:
        done = run.run(progress)
    if done.commits > 1 and not quiet:
        note(f"{done.rows:,} rows in {done.commits:,} commits, {done.rate:,} rows/s")
    return done


@contextmanager
def _told(run: Import) -> Generator[None]:
    """Say of a run that ended early what is in the table."""
    try:
        yield
    except BaseException:
        if run.place is not None and run.place.total:
            text = "the same command goes on behind them"
            note(f"{run.place.total:,} rows are in {run.name!r}: {text}")
        raise
