"""Maintenance commands: checkpoint, merge, optimize, maintain, vacuum, verify, status."""

from __future__ import annotations

import datetime as dt
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siltstone.cli.arguments import Attempts, Consent, Db, Quiet
from siltstone.cli.exits import Exit, UsageError
from siltstone.cli.output import Form, emit, emit_facts, emit_record
from siltstone.cli.progress import progress_bar
from siltstone.cli.sessions import asking, confirm, is_remote, note, path_of, reading, writing
from siltstone.errors import BusyError, CorruptionError, UnavailableError

if TYPE_CHECKING:
    from siltstone.admin import Maintained
    from siltstone.api.results import Deferred, Optimized, Status, Vacuumed
    from siltstone.errors import OwnedError
    from siltstone.store import Store

_SILENT = (UnavailableError, BusyError)
"""What an owner raises that does not answer: then a reader does."""
_COUNTS = ("files_before", "files_after", "rows", "segments", "indexed_rows")
"""What an optimize says of its tables."""


def checkpoint(db: Db, *, form: Form) -> None:
    """Flush all commits so far into Lance."""
    with writing(db) as store:
        record = store.checkpoint()
        found = {"record": record.number, "seq": record.flushed_seq}
    emit_record(found, form)


def merge(
    db: Db,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", show_default=False)] = None,
    attempts: Attempts = 8,
    *,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Fold flushed rows into the bases of the tables. Works with or without an owner."""
    from siltstone.admin import Deferred, merge_store

    if is_remote(db):
        with writing(db) as store:
            done = store.merge(table, attempts=attempts)
    else:
        done = merge_store(path_of(db, "merge"), table, attempts=attempts)
    if isinstance(done, Deferred):
        _report_deferred(done)
        return
    facts = {"seq": done.seq, "tables": ",".join(done.tables), "rows": done.rows}
    emit_record(facts, form, quiet=quiet)


def optimize(
    db: Db,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", show_default=False)] = None,
    target_rows: Annotated[int, typer.Option(help="The target number of rows in a file.")] = 1
    << 20,
    attempts: Attempts = 8,
    workers: Annotated[int, typer.Option(min=1, help="How many files to write at once.")] = 2,
    wait: Annotated[
        float,
        typer.Option(min=0, help="Wait this many seconds for the owner to pick up plain tables."),
    ] = 5.0,
    by_tiers: Annotated[bool, typer.Option("--by-tiers", help="Leave large files alone.")] = False,
    histories: Annotated[
        bool, typer.Option("--histories", help="Only histories of many small files.")
    ] = False,
    *,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Rewrite small files as large ones. Works with or without an owner."""
    from siltstone.admin import Deferred, optimize_store

    bounds: dict[str, Any] = {"target_rows": target_rows, "attempts": attempts, "workers": workers}
    if is_remote(db):
        if by_tiers or histories:
            which = "--by-tiers" if by_tiers else "--histories"
            raise UsageError(f"{which} needs a store's directory: a server does it by itself")
        with writing(db) as store:
            done = store.optimize(table, **bounds)
    elif histories:
        done = _optimize_histories(path_of(db, "optimize"), table, quiet=quiet)
    else:
        path = path_of(db, "optimize")
        with progress_bar("optimize", quiet=quiet) as told:
            done = optimize_store(
                path,
                table,
                **bounds,
                by_tiers=by_tiers,
                wait_s=wait,
                on_progress=lambda ended, all_of_them: told("", ended, all_of_them),
            )
    if isinstance(done, Deferred):
        _report_deferred(done)
        return
    counts = {name: getattr(done, name) for name in _COUNTS}
    emit_record({"tables": ",".join(done.tables), **counts}, form, quiet=quiet)


def _optimize_histories(path: str, table: str | None, *, quiet: bool) -> Optimized | Deferred:
    from siltstone.admin import optimize_histories

    if table is not None:
        raise UsageError(f"--histories finds its tables itself; got {table!r}")
    with progress_bar("optimize", quiet=quiet) as told:
        return optimize_histories(path, on_progress=lambda ended, of: told("", ended, of))


def maintain(db: Db, *, form: Form, quiet: Quiet = False) -> None:
    """Merge, optimize and vacuum, whichever is due: for timers.

    It owns a store that no process owns, and gives way to a process that wants to own it. If the
    owner serves, it does the work.
    """
    from siltstone.admin import maintain_store
    from siltstone.errors import OwnedError

    path = path_of(db, "maintain")
    try:
        with progress_bar("maintain", quiet=quiet) as told:
            found = maintain_store(path, on_progress=told)
    except OwnedError as owned:
        if owned.endpoint is None:
            raise
        found = _maintained_by(owned)
    emit_record({"done": ",".join(found.done), "left": ",".join(found.left)}, form, quiet=quiet)


def _maintained_by(owned: OwnedError) -> Maintained:
    """Have the owner do what is due by the newest record."""
    from siltstone.admin import Maintained, due_of
    from siltstone.joined.store import JoinedStore

    assert owned.endpoint is not None
    due = due_of(owned.path)
    with JoinedStore(Path(owned.path), owned.endpoint) as store:
        steps = {"merge": store.merge, "optimize": store.optimize}
        for step in due:
            steps.get(step, lambda: store.vacuum(dry_run=False))()
    return Maintained(due, ())


def _report_deferred(done: Deferred) -> None:
    note(f"deferred: {done.reason} ({done.attempts} attempts); nothing is wrong, try again later")


def jobs(db: Db, *, form: Form) -> None:
    """List the maintenance jobs of all processes. Dead and recently finished ones, too."""
    with reading(db) as store:
        found = store.jobs()
    rows = [
        (one.state, one.kind, ",".join(one.tables), one.tasks, one.pid, one.host,
         _moment(one.started_us), one.id)
        for one in found
    ]  # fmt: skip
    emit(["state", "kind", "tables", "tasks", "pid", "host", "started", "id"], rows, form)


def _moment(time_us: int) -> str:
    return dt.datetime.fromtimestamp(time_us // 1_000_000, dt.UTC).isoformat()


def vacuum(db: Db, *, consent: Consent, form: Form) -> None:
    """Delete the files that nothing needs any more.

    A retained past, a tag, a reader or a transaction needs its files. Works with or without an
    owner.
    """
    from siltstone.admin import Deferred

    found = _vacuumed(db, dry_run=True)
    if not consent.dry_run and found.files:
        confirm(f"Delete {len(found.files)} files ({found.nbytes} bytes)?", yes=consent.yes)
    if not consent.dry_run:
        try:
            found = _vacuumed(db, dry_run=False)
        except BusyError as busy:  # late, not wrong: what it deleted was garbage
            _report_deferred(Deferred(str(busy), 1))
            return
    for reason in found.spared:
        note(f"spared: {reason}")
    verb = "would delete" if found.is_dry_run else "deleted"
    note(f"{verb} {len(found.files)} files; the oldest readable seq is {found.oldest_seq}")
    rows = [(file.path, file.nbytes, file.why) for file in found.files]
    emit(["file", "bytes", "reason"], rows, form)


def _vacuumed(db: Db, *, dry_run: bool) -> Vacuumed:
    from siltstone.admin import vacuum_store

    if not is_remote(db):
        return vacuum_store(path_of(db, "vacuum"), dry_run=dry_run)
    with writing(db) as store:
        return store.vacuum(dry_run=dry_run)


def verify(
    db: Db,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte and every row.")] = False,
    *,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Check the store's files; exit code 5 if one is damaged. Works with or without an owner."""
    from siltstone.admin import verify_store

    if is_remote(db):
        with reading(db) as store:
            found = store.verify(deep=deep)
    else:
        path = path_of(db, "verify")
        with progress_bar("verify", quiet=quiet) as told:
            found = verify_store(path, deep=deep, on_progress=told)
    rows = [(item.severity, item.path, item.message) for item in found.findings]
    if form is Form.JSON:
        emit_record(found.to_dict(), form)
    else:
        emit(["severity", "path", "message"], rows, form)
    if not quiet:
        note(str(found).partition("\n")[0])
    if not found.is_sound:
        raise typer.Exit(Exit.CORRUPTED)


def status(
    db: Db,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until interrupted.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many updates.")] = None,
    *,
    form: Form,
) -> None:
    """Show the state of the store: seqs, log, memory, tables, jobs. The owner answers if it can."""
    left, by_reader = (count or sys.maxsize) if watch else 1, False
    while left:
        is_first = True
        try:
            with asking(db, by_reader=by_reader) as (store, who):
                while left:
                    _show(_counted(store), who, form, is_page=watch)
                    is_first, left = False, left - 1
                    if left:
                        time.sleep(interval)
        except _SILENT:  # at first a reader answers then; later who answered may have gone: again
            if is_first and (by_reader or is_remote(db)):
                raise
            by_reader = by_reader or is_first


def _counted(store: Store) -> Status:
    """Return the status with the rows of each table that can be read, as a snapshot has them."""
    found, rows = store.status(), dict[str, int]()
    with store.snapshot() as snapshot:
        for name in snapshot.tables():
            with suppress(CorruptionError):  # who reads the table hears of it
                rows[name] = snapshot[name].count()
    tables = (replace(each, rows=rows.get(each.name)) for each in found.tables)
    return replace(found, tables=tuple(tables))


def _show(found: Status, who: str, form: Form, *, is_page: bool) -> None:
    if form is Form.TABLE:
        # Home, and clear what is below: the page is drawn over itself.
        print(
            "\x1b[H\x1b[J" if is_page else "", f"{found}\n  answered by {who}", sep="", flush=True
        )
    else:
        emit_facts({"answered_by": who, **found.to_dict()}, form)
        sys.stdout.flush()
