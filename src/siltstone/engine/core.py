"""Core: the parts of one open store that transactions and snapshots work with, wired by `store`.

Immutable but for what its parts guard themselves. `refusal` says why the handle may not be used any
more (closed, or inherited by a forked child); every public call asks it first.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from siltstone.engine.commit import Committer
from siltstone.engine.commit_log import Commit
from siltstone.engine.reader import Readers
from siltstone.engine.recent_writes import OpenTransactions, RecentWrites
from siltstone.engine.view import State
from siltstone.engine.write_set import Receipt, WriteSet
from siltstone.errors import BusyError, ClosedError, ReadOnlyError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.group import Token
from siltstone.storage.files import Files
from siltstone.storage.tables import Tables

STAGED_S_MAX = 43_200.0
FOREIGN_GRACE_S = 2 * STAGED_S_MAX


class Ids:
    """Ids of tables and incarnations: never given twice; unused ones are gaps. Lock: one."""

    def __init__(self, first: int) -> None:
        self._lock = threading.Lock()
        self._next = first

    def take(self) -> int:
        """Return the next id."""
        with self._lock:
            self._next += 1
            return self._next - 1


class StagingLocks:
    """One lock per plain table: stagings on one table follow each other instead of racing.

    Held by a caller from its last staging to its receipt; the leader never takes one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[int, threading.Lock] = {}

    @contextmanager
    def held(self, tables: Iterable[int]) -> Generator[None]:
        """Hold the locks of some tables, taken in the order of their ids."""
        with ExitStack() as stack:
            for table in sorted(set(tables)):
                with self._lock:
                    lock = self._locks.setdefault(table, threading.Lock())
                stack.enter_context(lock)
            yield


@dataclass(slots=True, eq=False)
class Core:
    """See the module.

    `committer` is None in a read-only process; `state` gives what a new snapshot sees, `commits`
    finds commits that are in the log of commits (flushed or not), `room` waits while there is
    too much that is not flushed; `root` and `verify` are what another process opens the files by;
    `new_token` gives names that were never used before, `now_us` the time (us).
    """

    tables: Tables
    readers: Readers
    state: Callable[[], State]
    find_token: Callable[[Token], Commit | None]
    files: Files
    new_token: Callable[[], str]
    now_us: Callable[[], int]
    root: Path
    verify: str = "first_use"
    committer: Committer | None = None
    recent: RecentWrites = field(default_factory=RecentWrites)
    transactions: OpenTransactions = field(default_factory=OpenTransactions)
    room: Callable[[], None] = lambda: None
    after_commit: Callable[[], None] = lambda: None
    ids: Ids = field(default_factory=lambda: Ids(1))
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    staging: StagingLocks = field(default_factory=StagingLocks)
    refusal: str | None = None

    def check(self) -> None:
        """Refuse a handle that is closed or was inherited by a fork."""
        if self.refusal is not None:
            raise ClosedError(self.refusal)

    def writer(self) -> Committer:
        """Return the committer; a read-only store has none."""
        self.check()
        if self.committer is None:
            raise ReadOnlyError("this store was opened read-only; open it without read_only=True")
        return self.committer

    def _refuse_stale(self, write_set: WriteSet) -> None:
        """Refuse files that were staged so long ago that a vacuum may have taken them for garbage.

        A vacuum beside us spares what is younger than `FOREIGN_GRACE_S`, twice as long: what
        is admitted here is named by a frame long before any vacuum would take it.
        """
        if write_set.staged_us is not None:
            age_s = (self.now_us() - write_set.staged_us) / 1e6
            if age_s > STAGED_S_MAX:
                raise BusyError(
                    f"rows were staged {age_s:.0f} s ago, and a commit must follow within"
                    f" {STAGED_S_MAX:.0f} s; run the transaction again"
                )

    def submit(self, write_set: WriteSet) -> Receipt:
        """Wait for room, then commit."""
        committer = self.writer()
        self._refuse_stale(write_set)
        self.room()
        cross(Failpoint.COMMIT_BEFORE_FRAME)
        receipt = committer.commit(write_set)
        cross(Failpoint.COMMIT_AFTER_FRAME)
        self.after_commit()
        return receipt
