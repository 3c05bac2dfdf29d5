"""Sessions: a store opened for one command, to read beside its owner or to write as the owner."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from siltstone.cli.exits import NotFoundError, UsageError
from siltstone.errors import OwnedError

if TYPE_CHECKING:
    from siltstone.api.snapshot import Snapshot
    from siltstone.store import Store


@contextmanager
def reading(db: str) -> Generator[Store]:
    """Open the store read-only: any number of processes may, beside a live owner."""
    with opened(db, read_only=True) as store:
        yield store


@contextmanager
def writing(db: str) -> Generator[Store]:
    """Own the store for one command, or join the owner that serves it.

    It must be there: a typing error must not create one.
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
    """Open the store, which must be there, with `options`."""
    from siltstone.store import connect

    require_store(db)
    with connect(db, **options) as store:  # type: ignore[arg-type]
        yield store


def require_store(db: str) -> None:
    """Refuse to go on where no store is.

    Raises:
        NotFoundError: There is none.
        RequestError: It is no path.
    """
    from siltstone.joined.targets import is_url
    from siltstone.open.paths import root_of

    if not is_url(db) and not (root_of(db) / "manifest").is_dir():
        raise NotFoundError(f"there is no store at {db!r}; `siltstone init` makes one")


@contextmanager
def at_moment(db: str, *, at: str | None, seq: int | None, tag: str | None) -> Generator[Snapshot]:
    """Open a snapshot: now, or in the past."""
    with reading(db) as store, past(store, at=at, seq=seq, tag=tag) as snapshot:
        yield snapshot


def past(store: Store, *, at: str | None, seq: int | None, tag: str | None) -> Snapshot:
    """Return the snapshot that --at, --seq and --tag ask for.

    Raises:
        NotFoundError: No such tag.
        RequestError: More than one of them.
    """
    if tag is not None and tag not in store.tags():
        raise NotFoundError(f"no tag {tag!r}; there are {sorted(store.tags())}")
    return store.snapshot(at=at, seq=seq, tag=tag)


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if `--yes` was given or a person at a terminal agrees.

    Raises:
        UsageError: Nobody is there to ask.
        typer.Abort: The person said no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Say --yes, or --dry-run to look first")
    typer.confirm(question, abort=True, err=True)


def note(text: str) -> None:
    """Tell a person something that is not data."""
    print(text, file=sys.stderr)
