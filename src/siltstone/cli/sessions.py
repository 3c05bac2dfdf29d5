"""Sessions: a store opened for one command, read-only or as its owner."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import typer

from siltstone.cli.exits import NotFoundError, UsageError
from siltstone.errors import OwnedError

if TYPE_CHECKING:
    from siltstone.api.snapshot import Snapshot
    from siltstone.cli.arguments import AsOf
    from siltstone.store import Store


@contextmanager
def writing(db: str) -> Generator[Store]:
    """Own the store for one command, or join the owner that serves it.

    The store must exist: a misspelt path must not create one.
    """
    from siltstone.joined.store import JoinedStore
    from siltstone.store import connect

    require_store(db)
    try:
        store = connect(db, background=False)
    except OwnedError as owned:
        if owned.endpoint is None:
            raise
        store = JoinedStore(owned.path, owned.endpoint)
    with store:
        yield store


@contextmanager
def opened(db: str, **options: object) -> Generator[Store]:
    """Open an existing store with `options`."""
    from siltstone.store import connect

    require_store(db)
    with connect(db, **options) as store:  # type: ignore[arg-type]
        yield store


# Any number of processes may, also while the store has an owner.
reading = partial(opened, read_only=True)


def require_store(db: str) -> None:
    """Check that a store exists.

    Raises:
        NotFoundError: There is no store at `db`.
        RequestError: `db` is not a valid path.
    """
    from siltstone.joined.targets import is_url
    from siltstone.open.paths import root_of

    if not is_url(db) and not (root_of(db) / "manifest").is_dir():
        raise NotFoundError(f"there is no store at {db!r}; `siltstone init` creates one")


@contextmanager
def at_moment(db: str, as_of: AsOf) -> Generator[Snapshot]:
    """Open a snapshot: now, or in the past."""
    with reading(db) as store, past(store, as_of) as snapshot:
        yield snapshot


def past(store: Store, as_of: AsOf) -> Snapshot:
    """Return the snapshot of a moment.

    Raises:
        NotFoundError: There is no such tag.
        RequestError: More than one of them is given.
    """
    tag = as_of.tag
    if tag is not None and tag not in store.tags():
        names = ", ".join(sorted(store.tags()))
        known = f"The tags are {names}." if names else "This store has no tags."
        raise NotFoundError(f"There is no tag {tag!r}. {known}")
    return store.snapshot(at=as_of.at, seq=as_of.seq, tag=tag)


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
