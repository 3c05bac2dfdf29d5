"""Scopes: where the requests of a namespace go: to the newest seq, a transaction, or a snapshot."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from siltstone.errors import ReadOnlyError
from siltstone.query.fresh import Seen

if TYPE_CHECKING:
    from siltstone.engine.transaction import Transaction
    from siltstone.handles import Snapshot
    from siltstone.query.fresh import FreshVersions
    from siltstone.query.lance_catalog import Reads, Statements
    from siltstone.store import Store


class _Turn:
    """The lock of one table, for as long as somebody holds it or waits."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Live:
    """Each request sees the newest seq, and each change is a commit of its own. Any thread.

    Locks: one per table, over a request that commits a version; one over the table of those.
    """

    def __init__(self, db: Store, *, is_fresh: bool = False) -> None:
        self._db, self._is_fresh = db, is_fresh
        self._last = threading.local()
        self._lock = threading.Lock()
        self._turns: weakref.WeakValueDictionary[str, _Turn] = weakref.WeakValueDictionary()

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
            yield Seen(snapshot, fresh, partial(fresh.live, snapshot) if self._is_fresh else None)

    @contextmanager
    def writing(self) -> Generator[Statements]:
        self._last.transaction_id = None
        with self._db.transaction() as tx:
            yield tx
        if tx.receipt is not None:
            self._last.transaction_id = tx.receipt.transaction_id or None

    @contextmanager
    def turn(self, name: str) -> Generator[None]:
        with self._lock:
            turn = self._turns.setdefault(name, _Turn())
        with turn.lock:
            yield

    def transaction_id(self) -> str | None:
        return getattr(self._last, "transaction_id", None)


class InTransaction:
    """All requests are statements of one transaction; its owner commits. One lock: it."""

    def __init__(self, root: Path, tx: Transaction, fresh: FreshVersions) -> None:
        self.root, self._tx, self._fresh = root, tx, fresh
        self._lock = threading.RLock()

    @property
    def is_writable(self) -> bool:
        return True

    @contextmanager
    def reading(self) -> Generator[Reads]:
        with self._lock:
            yield Seen(self._tx, self._fresh, None)

    @contextmanager
    def writing(self) -> Generator[Statements]:
        with self._lock:
            yield self._tx

    def turn(self, name: str) -> AbstractContextManager[object]:  # noqa: ARG002
        return nullcontext()

    def transaction_id(self) -> str | None:
        return None


class Pinned:
    """All requests read one snapshot; none changes anything."""

    def __init__(
        self, root: Path, snapshot: Snapshot, fresh: FreshVersions | None, *, is_fresh: bool = False
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

    def transaction_id(self) -> str | None:
        return None
