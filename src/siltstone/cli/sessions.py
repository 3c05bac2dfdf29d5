"""Sessions: a store opened for one command: read-only, as its owner, or through a server."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from siltstone.cli.exits import NotFoundError, UsageError, named
from siltstone.cli.output import Form, emit_record
from siltstone.cli.progress import progress_bar
from siltstone.errors import OwnedError

if TYPE_CHECKING:
    from siltstone.api.snapshot import Snapshot
    from siltstone.cli.arguments import AsOf, Consent, Db
    from siltstone.store import Store


@contextmanager
def writing(db: Db) -> Generator[Store]:
    """Own the store for one command, or work through the owner that serves it, or a server.

    The store must exist: a misspelt path must not create one. What is due is done at the end, as
    far as it fits: a store may be written by commands alone.
    """
    from siltstone.joined.store import JoinedStore
    from siltstone.store import connect

    require_store(db)
    if is_remote(db):
        with served(db) as store:
            yield store
        return
    try:
        store = connect(db.uri, background=False)
    except OwnedError as owned:
        if owned.endpoint is None:
            raise
        store = JoinedStore(owned.path, owned.endpoint)
    with store:
        yield store
        with progress_bar("upkeep") as told:
            store.close(upkeep=True, on_progress=told)


def make_store(db: Db) -> None:
    """Make an empty store in a new directory, and say so.

    Raises:
        RequestError: The directory has other files.
    """
    from siltstone.store import connect

    with connect(db.uri, background=False) as made:
        note(f"{made.path} is a new store")


@contextmanager
def opened(db: Db, **options: object) -> Generator[Store]:
    """Open an existing store with `options`; a server has its own."""
    from siltstone.store import connect

    require_store(db)
    with served(db) if is_remote(db) else connect(db.uri, **options) as store:  # type: ignore[arg-type]
        yield store


# Any number of processes may, also while the store has an owner.
reading = partial(opened, read_only=True)


@contextmanager
def asking(db: Db, *, by_reader: bool = False) -> Generator[tuple[Store, str]]:
    """Open a store where it is known best: at its owner, if it answers; say who answers.

    `by_reader`: the owner was asked, and did not answer.
    """
    from siltstone.joined.joining import owner_at, owner_of
    from siltstone.paths import root_of

    if is_remote(db) or is_in_bucket(db):
        with reading(db) as store:
            yield store, f"the owner, at {db.uri}" if is_remote(db) else "a reader of the bucket"
        return
    require_store(db)
    root = root_of(db.uri)
    owner, who = (None, owner_of(root)) if by_reader else owner_at(root)
    if owner is not None:
        with owner:
            yield owner, f"the owner, {who}"
        return
    why = "no process owns the store" if who is None else f"the owner, {who}, does not answer"
    with reading(db) as store:
        yield store, f"a reader: {why}"


def served(db: Db) -> Store:
    """Work through a server, with the access token of a file or of $SILTSTONE_TOKEN."""
    from siltstone.store import connect

    token = None if db.token_file is None else _secret_in(db.token_file)
    return connect(db.uri, token=token, cafile=db.cafile)


def _secret_in(file: Path) -> str:
    """Return the access token in a file that only its user may read.

    Raises:
        NotFoundError: The file cannot be read.
        UsageError: Others may read it, or it has more or less than one line.
    """
    try:
        if file.stat().st_mode & 0o077:
            raise UsageError(f"{file} is open to others: chmod 600 {file}")
        lines = file.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFoundError(f"the token of {file} cannot be read: {error}") from None
    if len(lines) != 1:
        raise UsageError(f"{file} must contain one token; it contains {len(lines)} words")
    return lines[0]


def is_remote(db: Db) -> bool:
    """Say whether a server has the store."""
    from siltstone.joined.targets import is_url

    return is_url(db.uri)


def is_in_bucket(db: Db) -> bool:
    """Say whether the store is a mirror at a URL, which is only read."""
    from siltstone.bucket_url import is_bucket_url

    return is_bucket_url(db.uri)


def path_of(db: Db, purpose: str) -> str:
    """Return the path of the store, which must exist on this machine.

    Raises:
        UsageError: It is the URL of a server.
        NotFoundError: There is no store.
    """
    if is_remote(db):
        raise UsageError(
            f"{purpose} needs the store's files: run it on the machine of {db.uri}, with the"
            " store's directory as --db"
        )
    require_store(db)
    return db.uri


def has_store(db: Db) -> bool:
    """Say whether there is a store; a server has one, and a reader of a bucket will hear.

    Raises:
        RequestError: `db` is not a valid path.
    """
    from siltstone.paths import root_of

    root = None if is_remote(db) else root_of(db.uri, only_reads=is_in_bucket(db))
    return root is None or is_in_bucket(db) or (root / "manifest").is_dir()


def require_store(db: Db) -> None:
    """Check that a store exists, unless a server has it.

    Raises:
        NotFoundError: There is no store at `db`.
        RequestError: `db` is not a valid path.
    """
    if not has_store(db):
        raise NotFoundError(f"there is no store at {db.uri!r}; `siltstone init` creates one")


@contextmanager
def at_moment(db: Db, as_of: AsOf) -> Generator[Snapshot]:
    """Open a snapshot: now, or in the past."""
    with reading(db) as store, past(store, as_of) as snapshot:
        yield snapshot


def past(store: Store, as_of: AsOf) -> Snapshot:
    """Return the snapshot of a moment.

    Raises:
        NotFoundError: There is no such tag.
        RequestError: More than one of them is given.
    """
    if as_of.tag is not None:
        named("tag", as_of.tag, store.tags())
    return store.snapshot(at=as_of.at, seq=as_of.seq, tag=as_of.tag)


def agreed(question: str, would: Mapping[str, object], form: Form, consent: Consent) -> bool:
    """Say whether to go on: not if the user only wants to look at what `would` be done.

    Raises:
        UsageError, typer.Abort: As `confirm`.
    """
    if consent.dry_run:
        emit_record(would, form)
    else:
        confirm(question, yes=consent.yes)
    return not consent.dry_run


def confirm(question: str, *, yes: bool) -> None:
    """Continue only if the user gave `--yes` or agrees at a terminal.

    Raises:
        UsageError: Standard input is not a terminal.
        typer.Abort: The user answered no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Give --yes to confirm, or --dry-run to look first")
    typer.confirm(question, abort=True, err=True)


def note(text: str) -> None:
    """Print a message for the user to stderr."""
    print(text, file=sys.stderr)
