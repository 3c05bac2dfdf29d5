"""Lance scopes: where the catalog's requests go: to the newest seq, a transaction, a snapshot.

Locks: one per table, over a request that commits a version of it, so that who lost finds out at
once; one over the table of those, and of refused versions; one per transaction.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Protocol

from siltstone.engine.write.transaction import Transaction
from siltstone.errors import BusyError, ReadOnlyError
from siltstone.query.fresh import At, FreshVersions, Seen
from siltstone.query.lance_catalog import Reads, Statements

WAIT_S_MAX = 60.0
"""Who waits holds a thread of the server, and there are few."""
_REFUSED_MAX = 256


class View(At, Reads, Protocol):
    """A snapshot: all tables at one seq."""


class LiveStore(Protocol):
    """An open store of this process."""

    path: Path

    @property
    def is_read_only(self) -> bool: ...

    def snapshot(self) -> AbstractContextManager[View]: ...

    def transaction(self) -> Transaction: ...

    def fresh_versions(self) -> FreshVersions: ...


class _Turn:
    """The lock of one name, for as long as somebody holds it or waits."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Turns:
    """The turns of requests that commit to one table, or end one transaction. Any thread."""

    def __init__(self, wait_s_max: float = WAIT_S_MAX) -> None:
        self._wait_s_max = wait_s_max
        self._lock = threading.Lock()
        self._refused: dict[tuple[str, int], None] = {}
        self._turns: weakref.WeakValueDictionary[str, _Turn] = weakref.WeakValueDictionary()

    @contextmanager
    def of(self, name: str) -> Generator[None]:
        """Wait for the requests about `name` that came before.

        Raises:
            BusyError: One of them took too long, and still runs; nothing was begun.
        """
        with self._lock:
            turn = self._turns.setdefault(name, _Turn())
        if not turn.lock.acquire(timeout=self._wait_s_max):
            raise BusyError(
                f"another request about the same still runs after {self._wait_s_max:g} s; ask again"
            )
        try:
            yield
        finally:
            turn.lock.release()

    def note_refused(self, name: str, number: int) -> None:
        """Note that no version of that number came to be: its client asks for it next.

        The newest notes are kept, `_REFUSED_MAX` of them.
        """
        with self._lock:
            self._refused.pop((name, number), None)
            self._refused[name, number] = None
            if len(self._refused) > _REFUSED_MAX:
                del self._refused[next(iter(self._refused))]

    def was_refused(self, name: str, number: int) -> bool:
        """Say whether a version of that number was refused, as far as is known."""
        with self._lock:
            return (name, number) in self._refused

    def is_taken(self, name: str) -> bool:
        """Say whether a request about `name` is under way."""
        with self._lock:
            turn = self._turns.get(name)
        return turn is not None and turn.lock.locked()


class Live:
    """Each request sees the newest seq, and each change is a commit of its own. Any thread.

    Changes are those of `commits`, the same store under another number, if it is given.
    """

    def __init__(
        self,
        db: LiveStore,
        turns: Turns,
        *,
        is_fresh: bool = False,
        commits: LiveStore | None = None,
    ) -> None:
        self._db, self._turns, self._is_fresh = db, turns, is_fresh
        self._commits = commits or db
        self._last = threading.local()

    @property
    def root(self) -> Path:
        return self._db.path

    @property
    def is_writable(self) -> bool:
        return not self._db.is_read_only

    @contextmanager
    def reading(self) -> Generator[Reads]:
        with self._db.snapshot() as snapshot:
            if self._db.is_read_only and not self._is_fresh:
                yield snapshot
                return
            fresh = self._db.fresh_versions()
            of = partial(fresh.live, snapshot) if self._is_fresh else None
            yield Seen(snapshot, fresh, of, clears=self.is_writable)

    @contextmanager
    def writing(self) -> Generator[Statements]:
        self._last.transaction_id = None
        with self._commits.transaction() as tx:
            yield tx
        if tx.receipt is not None:
            self._last.transaction_id = tx.receipt.transaction_id or None

    @contextmanager
    def turn(self, name: str) -> Generator[None]:
        with self._turns.of(name):
            yield

    def note_refused(self, name: str, number: int) -> None:
        self._turns.note_refused(name, number)

    def was_refused(self, name: str, number: int) -> bool:
        return self._turns.was_refused(name, number)

    def transaction_id(self) -> str | None:
        return getattr(self._last, "transaction_id", None)


class InTransaction:
    """All requests are statements of one transaction; its owner commits. One lock: it."""

    def __init__(self, root: Path, tx: Transaction, fresh: FreshVersions) -> None:
        self.root, self._tx, self._fresh = root, tx, fresh
        self._lock, self._turns = threading.RLock(), Turns()

    @property
    def is_writable(self) -> bool:
        return True

    @contextmanager
    def reading(self) -> Generator[Reads]:
        with self._lock:
            yield Seen(self._tx, self._fresh, None, clears=True)

    @contextmanager
    def writing(self) -> Generator[Statements]:
        with self._lock:
            yield self._tx

    def turn(self, name: str) -> AbstractContextManager[object]:  # noqa: ARG002
        return nullcontext()

    def note_refused(self, name: str, number: int) -> None:
        self._turns.note_refused(name, number)

    def was_refused(self, name: str, number: int) -> bool:
        return self._turns.was_refused(name, number)

    def transaction_id(self) -> str | None:
        return None


class Pinned:
    """All requests read one snapshot; none changes anything."""

    def __init__(
        self, root: Path, snapshot: View, fresh: FreshVersions | None, *, is_fresh: bool = False
    ) -> None:
        self.root, self._snapshot, self._fresh = root, snapshot, fresh
        self._of = partial(fresh.exact, snapshot) if is_fresh and fresh is not None else None

    @property
    def is_writable(self) -> bool:
        return False

    @contextmanager
    def reading(self) -> Generator[Reads]:
        yield Seen(self._snapshot, self._fresh, self._of)

    @contextmanager
    def writing(self) -> Generator[Statements]:
        raise ReadOnlyError(f"the snapshot at seq {self._snapshot.seq} is read, not written")
        yield  # what makes it a generator

    def turn(self, name: str) -> AbstractContextManager[object]:  # noqa: ARG002
        return nullcontext()

    def note_refused(self, name: str, number: int) -> None:
        """Nothing is committed here."""

    def was_refused(self, name: str, number: int) -> bool:  # noqa: ARG002
        return False

    def transaction_id(self) -> str | None:
        return None
