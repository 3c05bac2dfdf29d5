"""Repair command: repairs damage, and commits the rows of external appends."""

from __future__ import annotations

from typing import Annotated

import typer

from siltstone.cli.arguments import Consent, Db, LocalDb, Quiet
from siltstone.cli.exits import Exit
from siltstone.cli.output import Form, emit, emit_record
from siltstone.cli.progress import progress_bar
from siltstone.cli.sessions import confirm, note, path_of, writing


def repair(
    db: LocalDb,
    import_external: Annotated[
        str | None,
        typer.Option(
            "--import-external",
            metavar="TABLE",
            help="Commit the rows that other programs appended to this plain table by path.",
        ),
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte and every row.")] = False,
    *,
    consent: Consent,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Repair provable damage and move damaged files aside. Exit code 5 if damage is left."""
    path = path_of(db, "repair")
    if import_external is not None:
        _import_external(db, import_external, form, consent)
        return
    from siltstone.admin import repair as run

    with progress_bar("repair", quiet=quiet) as told:
        found = run(path, deep=deep, on_progress=told)
    if found.steps and not consent.dry_run:
        for step in found.steps if not consent.yes else ():
            note(str(step))
        confirm(f"Carry out {len(found.steps)} repairs?", yes=consent.yes)
        with progress_bar("repair", quiet=quiet) as told:
            found = run(path, dry_run=False, deep=deep, on_progress=told)
    if form is Form.JSON:
        emit_record(found.to_dict(), form)
    else:
        rows = [(step.path, step.wrong, step.done) for step in found.steps]
        left = [(each.path, each.message, "restore it from a backup") for each in found.unproven]
        emit(["file", "damage", "repair"], [*rows, *left], form)
    if not quiet:
        note(str(found).partition("\n")[0])
    if not found.is_whole:
        raise typer.Exit(Exit.CORRUPTED)


def _import_external(db: Db, table: str, form: Form, consent: Consent) -> None:
    with writing(db) as store:
        found = store.import_external(table)
        if found.rows and not consent.dry_run:
            if not consent.yes:
                note(str(found))
            confirm(f"Commit {found.rows} rows to {table}?", yes=consent.yes)
            found = store.import_external(table, dry_run=False)
    if form is Form.JSON:
        emit_record(found.to_dict(), form)
        return
    columns = list(found.sample[0]) if found.sample else []
    emit(columns, [tuple(row.values()) for row in found.sample], form)
    note(str(found).partition("\n")[0])
