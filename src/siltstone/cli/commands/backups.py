"""Backup commands: backup, mirror, restore."""

from __future__ import annotations

import datetime as dt
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from siltstone.cli.arguments import Db, LocalDb, MirrorPair, Quiet
from siltstone.cli.output import Form, emit, emit_record
from siltstone.cli.progress import progress_bar
from siltstone.cli.sessions import note, path_of, writing

if TYPE_CHECKING:
    from siltstone.admin import Mirrored

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Directory = Annotated[Path, typer.Argument(metavar="DIR", show_default=False)]
Copy = Annotated[
    str,
    typer.Argument(
        metavar="DIR",
        show_default=False,
        help="A directory of backups, or the URL of a mirror: s3://bucket/prefix.",
    ),
]


def backup(
    db: LocalDb,
    directory: Directory,
    incremental: Annotated[
        bool,
        typer.Option(
            "--incremental", "-i", help="Copy only files that the directory does not have yet."
        ),
    ] = False,
    link: Annotated[
        bool, typer.Option("--link", help="Use hard links instead of copies; see docs/repair.md.")
    ] = False,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="Leave damaged files of tables out, and name them."),
    ] = False,
    *,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Copy one consistent snapshot into DIR and check every byte. Writers may continue."""
    from siltstone.admin import backup_store

    path = path_of(db, "backup")
    _settle(db)
    with progress_bar("backup", quiet=quiet) as told:
        made = backup_store(
            path,
            directory,
            incremental=incremental,
            link=link,
            skip_damaged=skip_damaged,
            on_progress=told,
        )
    for name in made.lost_tags:
        note(f"the backup has the tag {name!r}, but the store can no longer read its seq")
    _note_damaged(made.damaged)
    found = made.to_dict()
    if form is not Form.JSON:
        del found["lost_tags"], found["damaged"]  # which the notes name
    emit_record(found, form, quiet=quiet)


def mirror(
    pair: MirrorPair,
    trust_conditional_puts: Annotated[
        bool,
        typer.Option(
            "--trust-conditional-puts",
            help="Use a server that siltstone does not know; see docs/operating.md.",
        ),
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with each newer state, until Ctrl-C or SIGTERM.")
    ] = False,
    take: Annotated[
        bool, typer.Option("--take", help="Take the claim of a mirror elsewhere, which is gone.")
    ] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Go on with the mirror this store was restored from.")
    ] = False,
    *,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Put the store's newest state into a bucket. Writers may continue.

    Credentials, endpoint and region come from the environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL.
    """
    from siltstone.admin import mirror_store, require_bucket

    given, url = pair
    require_bucket(url)
    db = Db(path_of(given, "mirror"))
    how: dict[str, Any] = {"take": take, "adopt": adopt}
    how["trust_conditional_puts"] = trust_conditional_puts
    if follow:
        _follow(db, url, form, how, quiet=quiet)
        return
    _settle(db)
    with progress_bar("mirror", quiet=quiet) as told:
        made = mirror_store(db.uri, url, on_progress=told, **how)
    for name in made.lost_tags:
        note(f"the mirror has the tag {name!r}, but the store can no longer read its seq")
    if made.behind:
        note(f"{made.behind} commits are in the store's log alone; a checkpoint flushes them")
    if not quiet:
        _emit_mirrored(made, form)


def _follow(db: Db, url: str, form: Form, how: dict[str, Any], *, quiet: bool) -> None:
    """Mirror until a signal; each new record of the bucket is a line."""
    from siltstone.admin import follow_mirror

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    seen: list[int] = []

    def hears(made: Mirrored) -> None:
        if quiet or seen == [made.record]:
            return
        seen[:] = [made.record]
        if form in {Form.JSON, Form.NDJSON}:
            _emit_mirrored(made, form)
        else:
            sys.stdout.write(f"{made}\n")
        sys.stdout.flush()

    follow_mirror(db.uri, url, stop, hears=hears, **how)


def _emit_mirrored(made: Mirrored, form: Form) -> None:
    found = made.to_dict()
    if form is not Form.JSON:
        found["time"] = _moment(made.time_us)
        del found["lost_tags"], found["time_us"]
    emit_record(found, form)


def restore(
    directory: Copy,
    target: Annotated[Path | None, typer.Argument(metavar="[TARGET]", show_default=False)] = None,
    seq: Annotated[
        int | None, typer.Option(help="The seq of the backup. Default: the highest.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Take the last backup at or before a time, like 2026-11-20T10:00Z."),
    ] = None,
    tag: Annotated[
        str | None, typer.Option(help="Of a mirror: take the record at the seq of a tag.")
    ] = None,
    *,
    form: Form,
    quiet: Quiet = False,
) -> None:
    """Create a store at TARGET from a backup in DIR, or a mirror. Without TARGET, list backups."""
    from siltstone import admin

    if target is None:
        rows = [
            (each.seq, _moment(each.time_us), _moment(each.made_us), each.nbytes, len(each.damaged))
            for each in admin.backups(directory)
        ]
        emit(["seq", "time", "made", "bytes", "damaged"], rows, form)
        return
    with progress_bar("restore", quiet=quiet) as told:
        made = admin.restore(directory, target, seq=seq, at=at, tag=tag, on_progress=told)
    _note_damaged(made.damaged)
    found = made.to_dict()
    if form is not Form.JSON:
        del found["damaged"]
    emit_record(found, form, quiet=quiet)


def _note_damaged(paths: Sequence[str]) -> None:
    for path in paths:
        note(f"the backup is without {path}, which is damaged")


def _settle(db: Db) -> None:
    """Flush all commits, if the store is free or its owner serves; else the log is copied, too."""
    from siltstone.errors import OwnedError, UnavailableError

    with suppress(OwnedError, UnavailableError), writing(db) as store:
        store.checkpoint()


def _moment(time_us: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=time_us)
