"""Scope: where operations go: the newest seq of a store, a transaction, or a snapshot.

A server has one more, which goes where the headers of a request say. Lock: one for each
transaction, over a statement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from siltstone.api.results import Receipt
from siltstone.errors import ReadOnlyError, RequestError, TableNotFoundError
from siltstone.lance_namespace.limits import RowLimits
from siltstone.lance_versions.errors import Refused
from siltstone.lance_versions.fresh import FreshVersions
from siltstone.lance_versions.table_versions import TableVersions
from siltstone.lance_versions.turns import Turns
from siltstone.lance_versions.version_statements import VersionStatements
from siltstone.local.snapshot import LocalSnapshot
from siltstone.local.store import LocalStore
from siltstone.local.transaction import LocalTransaction
from siltstone.process import deadline
from siltstone.process.retry import Retry

ATTEMPTS = 100
Found = TypeVar("Found")


class HasCommit(Protocol):
    """The answer of a commit."""

    transaction_id: str | None


Committed = TypeVar("Committed", bound=HasCommit)
RowReads = LocalSnapshot | LocalTransaction
"""What rows are read of."""


@dataclass(frozen=True, slots=True)
class StatementCommit:
    """The commit that an operation was; both None: it is a part of an open transaction."""

    seq: int | None = None
    transaction_id: str | None = None

    @classmethod
    def of(cls, receipt: Receipt | None) -> StatementCommit:
        """Return the commit of a receipt; without one there is none yet."""
        return cls(receipt.seq, receipt.transaction_id or None) if receipt else cls()

    def told(self, answer: Committed) -> tuple[Committed, int | None]:
        """Return an answer with the id of the commit, and its seq."""
        answer.transaction_id = self.transaction_id
        return answer, self.seq


@dataclass(frozen=True, slots=True)
class ClientReads:
    """Tables as other clients see them at `seq`: keyed ones at their last merge, or fresh.

    A keyed table that was never merged has an empty version, so that it can be opened; with a
    read-only store it has none, because that writes nothing unasked. `clears`: clients may write,
    so versions of plain tables that were written by path are set aside.
    """

    seq: int
    _reads: LocalSnapshot | VersionStatements
    _fresh: FreshVersions | None
    _of: Callable[[str], TableVersions] | None = None
    clears: bool = False

    def tables(self) -> list[str]:
        return self._reads.tables()

    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        return self._reads.namespaces()

    def seen(self, name: str, /) -> TableVersions:
        """Return a table without a look at its files, and without a version that is made for it."""
        return self._reads.versions(name)

    def versions(self, name: str, /) -> TableVersions:
        seen = self._reads.versions(name)
        if self._fresh is None:
            return seen
        if not seen.is_keyed:
            if self.clears:
                self._fresh.clear_way(seen)
            return seen
        return self._fresh.merged(seen) if self._of is None else self._of(name)


class Scope(Protocol):
    """Where operations go; `root` is the store's directory."""

    root: Path
    is_writable: bool
    is_newest: bool
    """Whether it is neither a transaction nor a snapshot."""
    db: LocalStore
    turns: Turns
    """Requests that commit to one table follow each other: a loser finds out at once."""

    @property
    def limits(self) -> RowLimits: ...

    def reading(self) -> AbstractContextManager[ClientReads]: ...

    def writing(self, *, is_asked: bool = True) -> AbstractContextManager[LocalTransaction]:
        """Give a transaction whose changes are committed at the end, or later by its owner.

        `is_asked`: it does what the request asks for, so it spends the token of the request.
        """
        ...

    def opened(self, held: ExitStack, /) -> RowReads:
        """Return what rows are read of; it is released when `held` closes."""
        ...

    def settle(self) -> None:
        """Make durable what was read, if it leaves the process."""
        ...

    def write(
        self, work: Callable[[LocalTransaction], Found], unknown: Found, /
    ) -> tuple[Found, StatementCommit]:
        """Run a statement, again if another commit was first; return what it found.

        Args:
            work: The statement.
            unknown: What it found if its token was applied before: see `done`.

        Raises:
            ConflictError: It lost `ATTEMPTS` races.
        """
        ...


class LiveScope:
    """Each request sees the newest seq, and each change is a commit of its own. Any thread.

    Changes are those of `commits`, the same store under another number, if it is given.
    """

    def __init__(
        self,
        db: LocalStore,
        turns: Turns,
        *,
        is_fresh: bool = False,
        commits: LocalStore | None = None,
    ) -> None:
        self.db, self.turns, self._is_fresh = db, turns, is_fresh
        self._commits, self.limits = commits or db, RowLimits()
        self.root, self.is_writable, self.is_newest = db.path, not db.is_read_only, True

    @contextmanager
    def reading(self) -> Generator[ClientReads]:
        with self.db.snapshot() as snapshot:
            if self.db.is_read_only and not self._is_fresh:
                yield ClientReads(snapshot.seq, snapshot, None)
                return
            fresh = self.db.fresh_versions()
            of = partial(fresh.live, snapshot) if self._is_fresh else None
            yield ClientReads(snapshot.seq, snapshot, fresh, of, clears=self.is_writable)

    @contextmanager
    def writing(self, *, is_asked: bool = True) -> Generator[LocalTransaction]:  # noqa: ARG002 - tokens are of a server
        with self._commits.transaction() as tx:
            yield tx

    def opened(self, held: ExitStack) -> RowReads:
        return held.enter_context(self.db.snapshot())

    def settle(self) -> None:
        """Do nothing: what is read here is read in this process, or by who settles for all."""

    def write(
        self, work: Callable[[LocalTransaction], Found], unknown: Found
    ) -> tuple[Found, StatementCommit]:
        found, receipt = committed(self._commits.transaction, work, unknown)
        return found, StatementCommit.of(receipt)


class TransactionScope:
    """All requests are statements of one transaction; its owner commits. One lock: it."""

    def __init__(self, db: LocalStore, tx: LocalTransaction) -> None:
        self.root, self._tx, self._fresh = db.path, tx, db.fresh_versions()
        self._lock, self.turns = threading.RLock(), Turns()
        self.db, self.limits = db, RowLimits()
        self.is_writable, self.is_newest = True, False

    @contextmanager
    def reading(self) -> Generator[ClientReads]:
        with self._lock:
            yield ClientReads(self._tx.read_seq, self._tx.lance, self._fresh, clears=True)

    @contextmanager
    def writing(self, *, is_asked: bool = True) -> Generator[LocalTransaction]:  # noqa: ARG002 - tokens are of a server
        with self._lock:
            yield self._tx

    def opened(self, held: ExitStack) -> RowReads:
        held.enter_context(self._lock)
        self._tx.require_open()
        return self._tx

    def settle(self) -> None:
        """Do nothing, as in `LiveScope`."""

    def write(
        self, work: Callable[[LocalTransaction], Found], unknown: Found
    ) -> tuple[Found, StatementCommit]:
        with self._lock:
            return done(self._tx, work, unknown), StatementCommit()


class SnapshotScope:
    """All requests read one snapshot; none changes anything."""

    def __init__(self, db: LocalStore, snapshot: LocalSnapshot, *, is_fresh: bool = False) -> None:
        fresh = None if db.is_read_only and not is_fresh else db.fresh_versions()
        self.root, self._snapshot, self._fresh = db.path, snapshot, fresh
        self._of = partial(fresh.exact, snapshot) if is_fresh and fresh is not None else None
        self.db, self.limits = db, RowLimits()
        self.turns, self.is_writable, self.is_newest = Turns(), False, False

    @contextmanager
    def reading(self) -> Generator[ClientReads]:
        yield ClientReads(self._snapshot.seq, self._snapshot, self._fresh, self._of)

    def writing(self, **_: object) -> NoReturn:
        raise self._refusal

    def opened(self, held: ExitStack) -> RowReads:  # noqa: ARG002 - it is its caller's
        return self._snapshot

    def settle(self) -> None:
        """Do nothing, as in `LiveScope`."""

    def write(self, *_: object) -> NoReturn:
        raise self._refusal

    @property
    def _refusal(self) -> ReadOnlyError:
        return ReadOnlyError(f"the snapshot at seq {self._snapshot.seq} is read, not written")


# what operations find in a scope


def location_of(scope: Scope, folder: str) -> str:
    """Return where a table lies, as every operation says it: an absolute path, or a URL."""
    return str(scope.root / folder)


def known(scope: Scope, name: str, look: Callable[[str], TableVersions]) -> TableVersions:
    """Return a table as `look`, of what a scope reads, finds it.

    Raises:
        TableNotFoundError: There is none of that name.
    """
    try:
        return look(name)
    except TableNotFoundError as error:
        refusal = scope.turns.refusal_of(name)
        if refusal is None:
            raise
        why = f"the last commit to it was refused: {refusal}"
        raise TableNotFoundError(name, why=why) from error


@contextmanager
def shown(scope: Scope) -> Generator[RowReads]:
    """Give what rows are read of; what was read is durable when the block ends."""
    with ExitStack() as held:
        yield scope.opened(held)
        scope.settle()


def seq_shown(found: RowReads) -> int:
    """Return the seq that is read at."""
    return found.read_seq if isinstance(found, LocalTransaction) else found.seq


def done(tx: LocalTransaction, work: Callable[[LocalTransaction], Found], unknown: Found) -> Found:
    """Run a statement, whole or not at all; under a token that was applied it fails at nothing.

    What it does is forgotten, and what it was about may be gone by now: a client that lost the
    answer hears the same again, also if other clients changed the tables since.
    """
    try:
        with tx.whole():
            return work(tx)
    except (RequestError, Refused):
        if not tx.is_applied:
            raise
        return unknown


def committed(
    begin: Callable[[], AbstractContextManager[LocalTransaction]],
    work: Callable[[LocalTransaction], Found],
    unknown: Found,
    on_loss: Callable[[Exception], object] = lambda _: None,
) -> tuple[Found, Receipt]:
    """Run a statement in a transaction of its own and commit it; again after a conflict.

    The deadline of the thread ends before the commit: from there on it is not given up. `on_loss`
    hears of each conflict before the next try.

    Raises:
        ConflictError: It lost `ATTEMPTS` races.
    """

    def once() -> tuple[Found, Receipt]:
        with begin() as tx:
            found = done(tx, work, unknown)
            deadline.check()
            with deadline.within(None):
                return found, tx.commit()

    return Retry(ATTEMPTS).run(once, on_loss=on_loss)
