"""Core: the parts of one open store that transactions and snapshots work with, wired by `store`.

Immutable but for what its parts guard themselves. `refusal` says why the handle may not be used any
more (closed, or inherited by a forked child); every public call asks it first.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from siltstone.engine.commit.committer import Committer
from siltstone.engine.commit.recent_writes import OpenTransactions, RecentWrites
from siltstone.engine.commit.write_set import Receipt, WriteSet
from siltstone.engine.read.past import CommitHistory
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import State
from siltstone.errors import (
    BusyError,
    ClosedError,
    InDoubtError,
    NotShippedError,
    ReadOnlyError,
    RequestError,
    SiltstoneError,
    UnavailableError,
)
from siltstone.options import Options, SqlBounds
from siltstone.paths import only_read
from siltstone.process import threads
from siltstone.process.latency import Latency
from siltstone.process.spares import Spares
from siltstone.process.turns import TableTurns
from siltstone.storage.files.files import Files
from siltstone.storage.site import Site
from siltstone.storage.tables.jobs import Begun
from siltstone.storage.tables.store_tables import Tables
from siltstone.telemetry.works import Works

_READS_A_TURN = 64
_SPARES_MAX = 4
SHIPPED_WAIT_S = 60.0
"""The longest wait of a commit for the bucket."""


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


class Open(Protocol):
    """What ends with its handle: a transaction."""

    def give_up(self) -> None:
        """Roll back; from any thread, and from a signal's handler."""
        ...


class Ships(Protocol):
    """What sends durable commits into a bucket: `maintenance.shipping.shipper.Shipper`."""

    @property
    def shipped_seq(self) -> int:
        """The last seq that outlives this machine; 0 until that is known."""
        ...

    @property
    def failure(self) -> str | None:
        """Why nothing is shipped now; None: it goes on."""
        ...

    @property
    def is_begun(self) -> bool:
        """Whether anything was to be shipped yet."""
        ...

    def wait(self, seq: int, timeout_s: float) -> str | None:
        """Wait until a durable commit is shipped; return why it is not, or None: it is."""
        ...


@dataclass(slots=True, eq=False, weakref_slot=True)
class Core:
    """See the module.

    `committer` is None in a read-only process; `state` gives what a new snapshot sees, `commits`
    finds commits that are in the log of commits, flushed or not; `site` has the store's files, the
    clock and new names; `root` and `verify` are what another process opens the files by; `sql` is
    what one statement of SQL may use, and `spares` keeps what statements ran in; `ids` gives those
    of tables and incarnations: never twice, and unused ones are gaps. `latency` has the commits of
    all handles: the committer adds them; `works` has the other work of this process. `shipper` is
    None in a store without a mirror.

    A handle that shares its store has a copy, whose `refusal` is its own (`opened`), and so is
    `under_way`: the transactions that it began and that have not ended. Who takes one out ends it.
    """

    site: Site
    readers: Readers
    commits: CommitHistory
    state: Callable[[], State]
    verify: str = "first_use"
    sql: SqlBounds = field(default_factory=lambda: Options().sql)
    spares: Spares = field(default_factory=lambda: Spares(_SPARES_MAX))
    committer: Committer | None = None
    recent: RecentWrites = field(default_factory=RecentWrites)
    transactions: OpenTransactions = field(default_factory=OpenTransactions)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    staging: StagingLocks = field(default_factory=StagingLocks)
    turns: TableTurns = field(default_factory=TableTurns)
    doubts: ExitStack = field(default_factory=ExitStack)
    refusal: str | None = None
    latency: Latency = field(default_factory=Latency)
    works: Works = field(default_factory=Works)
    shipper: Ships | None = None
    shipped_wait_s: float = SHIPPED_WAIT_S
    reads: int = field(default=0, init=False)
    under_way: dict[int, Callable[[], Open | None]] = field(default_factory=dict, init=False)

    @property
    def root(self) -> Path:
        """The store's directory."""
        return self.site.root

    @property
    def files(self) -> Files:
        """The store's files."""
        return self.site.files

    @property
    def tables(self) -> Tables:
        """The store's columnar datasets."""
        return self.site.tables

    def end(self, why: str) -> None:
        """Refuse every later call, and roll back what is open; a commit that is inside goes on."""
        self.refusal = self.refusal or why
        if self.committer is not None:
            self.committer.news.tell()
        while self.under_way:
            with suppress(KeyError):  # it ended just now
                found = self.under_way.popitem()[1]()
                if found is not None:  # else its finalizer forgets it
                    with suppress(SiltstoneError, OSError):  # a hold that ends with the process
                        found.give_up()

    def check(self) -> None:
        """Refuse a handle that is closed or was inherited by a fork."""
        if self.refusal is not None:
            raise ClosedError(self.refusal)

    def writer(self) -> Committer:
        """Return the committer; a read-only store has none."""
        if self.committer is None or self.refusal is not None:
            self.check()
            raise ReadOnlyError(only_read(self.root))
        return self.committer

    def ships(self) -> Ships:
        """Return what ships commits.

        Raises:
            RequestError: The store has no mirror.
        """
        if self.shipper is None:
            raise RequestError(
                "commits are shipped into a mirror: open the store with mirror=URL of a bucket"
            )
        return self.shipper

    def wait_shipped(
        self, seq: int, receipt: Receipt | None = None, timeout_s: float | None = None
    ) -> int:
        """Wait until a durable commit is in the bucket; return the last seq that is.

        Raises:
            NotShippedError: It is not, or not known to be, after so long.
        """
        ships = self.ships()
        try:
            reason = ships.wait(seq, self.shipped_wait_s if timeout_s is None else timeout_s)
        except UnavailableError as error:  # no thread: what is committed stays so
            reason = str(error)
        if reason is not None:
            raise NotShippedError(seq, reason, receipt)
        return ships.shipped_seq

    def give_way(self) -> None:
        """Count a read of one row during a commit; each 64th gives up the interpreter's lock once.

        A thread that only reads keeps the lock for 5 ms, and a thread that commits needs it again
        after its sync: eight such threads left two writers one commit in forty (ADR 52).
        """
        self.reads += 1  # two threads may count one read: it is no matter which of them waits
        if not self.reads % _READS_A_TURN:
            threads.give_way()

    def unite(self, folder: str) -> None:
        """Let other programs find the files of a dataset again, whatever was cleaned up there.

        A read-only process writes nothing, and leaves it to the owner.
        """
        if self.committer is not None:
            with suppress(UnavailableError):  # they say themselves what they do not find
                self.tables.names.unite(folder)

    def submit(self, write_set: WriteSet) -> Receipt:
        """Commit; while that lasts, no vacuum takes what was staged."""
        committer = self.committer
        if committer is None or self.refusal is not None:
            committer = self.writer()
        staged_us, spans = write_set.staged_us, self.works.spans
        commit = committer.commit if spans is None else partial(spans.commit, committer.commit)
        if staged_us is None:  # most commits, and a hold on nothing would take them a microsecond
            return commit(write_set)
        with self._held(staged_us):
            return commit(write_set)

    def begun(self) -> Begun:
        """Return when what begins now began: never before the gc horizon."""
        return Begun.at(self.site.now_us, self.gc_horizon_us())

    def gc_horizon_us(self) -> int:
        """Return the time (us) before which unpublished work is garbage, unless a job holds it."""
        known = self.state().view.record
        return (self.site.manifests.newer_record(known) or known).gc_horizon_us

    @contextmanager
    def _held(self, staged_us: int) -> Generator[None]:
        """Keep what was staged since `staged_us` from vacuum until a durable frame names it.

        Held first, then compared with the gc horizon: a vacuum says its horizon, and only
        then looks who holds what, and after that what the log names.
        """
        with self.until_known(self.site.jobs.hold(staged_us)):
            gc_horizon_us = self.gc_horizon_us()
            if gc_horizon_us > staged_us:
                raise BusyError(
                    f"rows were staged at {staged_us}, and a vacuum took what was not published"
                    f" by {gc_horizon_us} for garbage; run the transaction again"
                )
            yield

    @contextmanager
    def until_known(self, kept: AbstractContextManager[object]) -> Generator[None]:
        """Enter what keeps from vacuum what a commit names, until it is known how that ended.

        Of one in doubt the frame may be durable, and no view knows it: `doubts` keeps it until the
        store ends, and who owns it next recovers the frame before any vacuum looks.
        """
        with ExitStack() as held:
            held.enter_context(kept)
            try:
                yield
            except BaseException as error:
                is_refused = isinstance(error, SiltstoneError) and type(error) is not InDoubtError
                if not is_refused and self.committer is not None and self.committer.poisoned:
                    self.doubts.push(held.pop_all())
                raise
