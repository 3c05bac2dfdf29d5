"""Maintenance commands: checkpoint, merge, vacuum, verify, status."""

from __future__ import annotations

from typing import Annotated

import typer

from siltstone.cli.arguments import Db, Json, Ndjson, Quiet
from siltstone.cli.output import emit_record, form_of
from siltstone.cli.sessions import note, writing


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
    done = merge_beside(db, table)
    if quiet:
        return
    if isinstance(done, Deferred):
        note(f"put off: {done.reason} ({done.attempts} attempts); nothing is wrong, try again")
        return
    emit_record({"seq": done.seq, "tables": ",".join(done.tables), "rows": done.rows}, form)


def vacuum() -> None:
    """X."""


def verify() -> None:
    """X."""


def status() -> None:
    """X."""
