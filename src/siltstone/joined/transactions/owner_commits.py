"""Owner commits: how the transactions that run in this process commit: one request to the owner.

    run here ─▶ write set ─▶ sent, with its read seq ─▶ a receipt, or an error
                   ▲            └─▶ a scanned table was written: the keys, since the last look
                   └── none of them holds a predicate, before or after: sent again ◀──┘

Nobody registers the read seq: the owner finds by what it remembers and keeps whether another commit
won. This process leases the record of its snapshot until the answer came.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from siltstone.engine.commit.admission import RecheckError
from siltstone.engine.commit.committer import Committer
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.news import News
from siltstone.engine.commit.recent_writes import OpenTransactions
from siltstone.engine.commit.write_set import ReadSet, Receipt, WriteSet
from siltstone.engine.read.view import State
from siltstone.engine.recover.nearby import AskOwner
from siltstone.engine.write import sent_writes
from siltstone.engine.write.sent_writes import Recheck
from siltstone.errors import ConflictError
from siltstone.joined.connection_pool import ConnectionPool
from siltstone.joined.near import Near
from siltstone.process.latency import Latency
from siltstone.process.turns import TableClosedError

KEYS_READ_MAX = 10_000
"""Above so many keys that were read of one table, the commit counts them as a scan of it."""


_thread = threading.local()


@contextmanager
def first_try() -> Generator[None]:
    """Let the commits of this thread be those of first tries (`api.runs`)."""
    _thread.is_first = True
    try:
        yield
    finally:
        _thread.is_first = False


class OwnerCommits:
    """What `Core` needs of a committer, where the owner commits. Any thread."""

    is_led = poisoned = False

    def __init__(
        self, pool: ConnectionPool, state: Callable[[], State], look: Callable[[], object]
    ) -> None:
        """Send to the owner; `look` reads the files for as long as that takes."""
        self._pool, self._state, self._look = pool, state, look
        self.news = News()

    def commit(self, write_set: WriteSet) -> Receipt:
        """Have the owner commit; errors as of `ConnectionPool.commit`, and of the owner's commit.

        Raises:
            RecheckError: See `engine.write.submission`.
            TableClosedError: It is a `first_try`, and a table that it wrote is closed.
        """
        pool = self._pool
        if write_set.reads is not None:
            _bound(write_set.reads)
        named = {"is_first": True} if getattr(_thread, "is_first", False) else {}
        message = pool.message("commit_writes", (sent_writes.encode(write_set),), named)
        found = pool.commit(pool.take(), message)
        if isinstance(found, list):
            raise TableClosedError(str(found[0]))
        if isinstance(found, Recheck):
            raise self._recheck(write_set, found)
        receipt = cast("Receipt", found)
        pool.committed(receipt.seq)
        return receipt

    def _recheck(self, write_set: WriteSet, found: Recheck) -> RecheckError:
        """Return what to look at: by a state of this process that has what was written.

        Raises:
            ConflictError: It cannot read the files so far: nobody knows whether another commit won.
        """
        self._pool.committed(found.upto)
        try:
            return RecheckError(found.upto, self._state(), found.keys)
        except AskOwner:  # there is nothing to ask it: the predicates are here
            self._look()
        try:
            return RecheckError(found.upto, self._state(), found.keys)
        except AskOwner as error:
            explained = f"what was written since its scans is not known ({error}); run it again"
            read_seq = write_set.read_seq or 0
            raise ConflictError("*", "*", read_seq, found.upto, explained=explained) from error


class _Unregistered(OpenTransactions):
    """The transactions of this process, of which nobody has to remember writes."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count(1)

    def begin(self, number: int, visible: object, app: str = "") -> object:  # noqa: ARG002
        """Return the state that `visible` gives; it may read a file, so under no lock."""
        return visible()  # type: ignore[operator]


def core_of(pool: ConnectionPool, near: Near) -> Core:
    """Return the core of the transactions that run in this process."""
    core = near.db.core
    commits = OwnerCommits(pool, core.state, near.look)
    return replace(
        core,
        committer=cast("Committer", commits),
        transactions=_Unregistered(),
        latency=Latency(),
    )


def _bound(reads: ReadSet) -> None:
    for incarnation, keys in list(reads.keys.items()):
        if len(keys) > KEYS_READ_MAX:
            del reads.keys[incarnation]
            reads.scans.setdefault(incarnation, []).append(None)
