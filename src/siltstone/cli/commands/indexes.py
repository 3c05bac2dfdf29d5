"""Index commands: index create, index ls, index drop; for keyed tables, in any process."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from siltstone.choices import IndexKind, IndexOptions
from siltstone.cli.arguments import Consent, Db, Table, add_command, form_of
from siltstone.cli.exits import UsageError, named
from siltstone.cli.output import Form, emit
from siltstone.cli.sessions import agreed, is_remote, path_of, reading, writing

app = typer.Typer(
    name="index",
    help="Manage indexes. They speed up queries and never change results.",
    no_args_is_help=True,
)


def create(
    table: Table,
    column: Annotated[str, typer.Argument(metavar="COLUMN", show_default=False)],
    db: Db,
    kind: Annotated[IndexKind, typer.Option(help="The kind of the index.")] = "btree",
    name: Annotated[
        str | None, typer.Option(help="The name of the index. Default: the name of the column.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="An option of the kind, like metric=cosine."),
    ] = None,
    build: Annotated[
        bool, typer.Option("--build/--later", help="Build the index now, or in the next optimize.")
    ] = True,
) -> None:
    """Create an index on a column. Works with or without an owner."""
    from siltstone.admin import create_index_in

    details = cast("IndexOptions", dict(_option(text) for text in option or ()))
    if is_remote(db):
        with writing(db) as store:
            store[table].create_index(column, kind, name=name, build=build, **details)
        return
    path = path_of(db, "index create")
    create_index_in(path, table, column, kind, name=name, build=build, details=details)


def _option(text: str) -> tuple[str, object]:
    name, found, value = text.partition("=")
    if not found:
        raise UsageError(f"an option must be like metric=cosine; got {text!r}")
    if value in {"true", "false"}:
        return name, value == "true"
    return name, int(value) if value.isdecimal() else value


def ls(
    db: Db,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", show_default=False)] = None,
    *,
    form: Form,
) -> None:
    """List the indexes of a table, or of all. Also their sizes and missing rows."""
    with reading(db) as store:
        names = store.tables() if table is None else [table]
        found = [(name, index) for name in names for index in store[name].indexes()]
    rows = [
        (name, i.name, i.column, i.kind, i.segments, i.nbytes, i.lagging_rows) for name, i in found
    ]
    emit(["table", "index", "column", "kind", "segments", "bytes", "lagging_rows"], rows, form)


def drop(
    table: Table,
    name: Annotated[str, typer.Argument(metavar="INDEX", show_default=False)],
    db: Db,
    *,
    consent: Consent,
) -> None:
    """Drop an index. The rows stay."""
    from siltstone.admin import drop_index_in

    with reading(db) as store:
        known = {index.name: index for index in store[table].indexes()}
        found = named("index", name, known, f"{table!r} has")
    would = {"table": table, "index": name, "bytes": found.nbytes}
    question = f"Drop the index {name!r} of {table!r} ({found.nbytes} bytes)?"
    if not agreed(question, would, form_of(), consent):
        return
    if not is_remote(db):
        drop_index_in(path_of(db, "index drop"), table, name)
        return
    with writing(db) as store:
        store[table].drop_index(name)


for command in (create, ls, drop):
    add_command(app, command)
