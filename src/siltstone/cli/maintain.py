"""Maintenance commands: checkpoint, merge, vacuum, verify, status."""

from __future__ import annotations

from typing import Annotated

import typer

from siltstone.cli.arguments import Db, DryRun, Json, Ndjson, Quiet, Yes
from siltstone.cli.output import emit, emit_record, form_of
from siltstone.cli.sessions import confirm, note, require_store, writing


def checkpoint(db: Db, json: Json = False, ndjson: Ndjson = False) -> None:
    """Flush everything committed so far into Lance."""
    form = form_of(json=json, ndjson=ndjson)
    with writing(db) as store:
        record = store.checkpoint()
        found = {"record": record.number, "seq": record.flushed_seq}
    emit_record(found, form)


def merge(
    db: Db,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", show_default=False)] = None,
    json: Json = False,
    ndjson: Ndjson = False,
    quiet: Quiet = False,
) -> None:
    """Fold what is flushed into the bases of the tables; beside a live owner or without one."""
    from siltstone.store import Deferred, merge_beside

    form = form_of(json=json, ndjson=ndjson)
    require_store(db)
    done = merge_beside(db, table)
    if quiet:
        return
    if isinstance(done, Deferred):
        note(f"put off: {done.reason} ({done.attempts} attempts); nothing is wrong, try again")
        return
    emit_record({"seq": done.seq, "tables": ",".join(done.tables), "rows": done.rows}, form)


def vacuum(
    db: Db,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    ndjson: Ndjson = False,
) -> None:
    """Delete the files that nothing needs: no kept past, no tag, no reader, no transaction."""
    form = form_of(json=json, ndjson=ndjson)
    with writing(db) as store:
        found = store.vacuum(dry_run=True)
        if not dry_run and found.files:
            confirm(f"Delete {len(found.files)} files ({found.nbytes} bytes)?", yes=yes)
        if not dry_run:
            found = store.vacuum(dry_run=False)
    for reason in found.spared:
        note(f"spared: {reason}")
    verb = "would delete" if found.is_dry_run else "deleted"
    note(f"{verb} {len(found.files)} files; seqs from {found.oldest_seq} on are readable")
    rows = [(file.path, file.nbytes, file.why) for file in found.files]
    emit(["file", "bytes", "reason"], rows, form)


def verify() -> None:
    """x."""


def status() -> None:
    """x."""
