"""Scheduler: the owner's background work, and the backpressure on writers when it lags.

    one thread:  next log segment · ladder of runs · checkpoint when the memtables are full ·
                 refresh to records of others · merge, optimize (child processes at nice 19) ·
                 idle work, after a minute without a commit
    another:     vacuum, once an hour: it reads much, and no checkpoint may wait for it
    another:     commits of compacted plain tables; commits wait for room

A failure is logged and kept for `status`; the work is retried with a pause that doubles up to
`PAUSE_S_MAX`. Background work changes no result, so a delay loses nothing.

Backpressure: `room` lets a writer pass while at most `sealed_generations_max` generations wait to
be flushed, and while the indexes of un-merged history fit their share of the memory; else it waits,
and after `room_timeout_s` refuses with BusyError. While writers wait for a merge, the merge gets
more priority. If the work that a writer waits for keeps failing, the writer gets the error after
`FAILING_WAIT_S`. If the background has ended (fenced, poisoned), every writer gets the error
immediately.

Lock: the condition `_wake` guards the flags; no work is done under it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from siltstone import threads
from siltstone.engine.commit.committer import Committer
from siltstone.engine.levels.base import INDEX_ROW_BYTES
from siltstone.engine.levels.history_run import HistoryRun, index_bytes
from siltstone.engine.levels.memtable import Memtable
from siltstone.engine.read.view import View
from siltstone.errors import BusyError, FencedError, PoisonedError, in_words
from siltstone.maintenance.compaction.compaction import Sizes, Span
from siltstone.maintenance.index.index_plan import KEY_ROWS_MIN, lacks_key
from siltstone.storage.tables.tables import TableReader

TICK_S = 0.25
NEWS_INTERVAL_S = 1.0
VACUUM_INTERVAL_S = 3600.0
IDLE_S = 60.0
PAUSE_S_MAX = 5.0
FAILING_WAIT_S = 10.0
FAILURES_MAX = 3
"""A writer gets an error when the work it waits for failed this often, and for this long."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Work:
    """The tasks; each may raise a SiltstoneError and is then retried.

    `merge` and `optimize` look themselves whether there is enough to do.
    `rest`: work after `IDLE_S` without a commit; False if it must be called again.
    `is_overdue`: the indexes of un-merged history are beyond their share of the memory; then
    writers wait for a merge, or, without a background, run `merge_here`. `hurry` is called before
    each `merge` with whether writers wait; `backlog` describes the rows and their limit for users.
    """

    checkpoint: Callable[[], object]
    refresh: Callable[[], object]
    prepare: Callable[[], object]
    merge_runs: Callable[[], bool]
    merge: Callable[[], object]
    vacuum: Callable[[], object]
    is_overdue: Callable[[], bool] = lambda: False
    merge_here: Callable[[], object] = lambda: None
    optimize: Callable[[], object] = lambda: None
    has_finished: Callable[[], bool] = lambda: False
    take_finished: Callable[[], object] = lambda: None
    rest: Callable[[], bool] = lambda: True
    hurry: Callable[[bool], object] = lambda _: None
    backlog: Callable[[], str] = lambda: ""


class Scheduler:
    """See the module. `start` starts the threads, `stop` ends them and waits for running work."""

    def __init__(
        self,
        committer: Committer,
        work: Work,
        *,
        memtable_bytes_max: int,
        sealed_generations_max: int,
        room_timeout_s: float,
        is_background: bool,
        vacuum_interval_s: float = VACUUM_INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._committer, self._work = committer, work
        self._memtable_bytes_max = memtable_bytes_max
        self._sealed_max = sealed_generations_max
        self._room_timeout_s = room_timeout_s
        self._wake = threading.Condition()
        self._is_woken = self._is_stopping = False
        self._thread: threading.Thread | None = None
        self._is_background = is_background
        self._heard_bytes = 0
        self._pause_s = 0.0
        self._is_overdue = False
        self._waiting = 0
        self._failures = 0  # of flushes and merges, ever
        self._vacuum_interval_s, self._vacuumed_at = vacuum_interval_s, clock()
        self._clock, self._idle_since, self._rested_at = clock, clock(), -1
        self._last_seq = -1
        self._aside: dict[str, threading.Thread] = {}
        self.failure: Exception | None = None
        self.last_failure: Exception | None = None

    def start(self) -> None:
        """Start the background, if it is on.

        Raises:
            UnavailableError: The system has no more threads.
        """
        if self._is_background:
            thread = threading.Thread(target=self._loop, name="siltstone-scheduler", daemon=True)
            threads.start(thread)
            self._thread = thread

    def stop(self) -> None:
        """Stop after the running work."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        while self._aside:
            self._aside.popitem()[1].join()

    def grown(self, active_bytes: int) -> None:
        """Set the size of the active memtables; called by the leader, never waits for work."""
        step = max(1 << 20, self._memtable_bytes_max // 8)
        if active_bytes < self._heard_bytes:
            self._heard_bytes = 0
        if active_bytes >= self._memtable_bytes_max or active_bytes - self._heard_bytes >= step:
            self._heard_bytes = active_bytes
            with self._wake:
                self._is_woken = True
                self._wake.notify_all()

    def room(self) -> None:
        """Wait until a writer may continue.

        Raises:
            BusyError: The wait took longer than `room_timeout_s`, or the work keeps failing;
                nothing was written.
            FencedError, PoisonedError: The background found that, and ended.
            UnavailableError: Without a background: there is no room, and the checkpoint failed.
        """
        self._refuse_ended()
        if not self._is_background:
            if not self._has_room():
                self._work.checkpoint()
            return
        if self._has_room():
            return
        with self._wake:
            # Once: writers that woke the others at every look would keep each other from sleeping.
            self._is_woken = True
            self._wake.notify_all()
            self._waiting += 1
            try:
                self._wait_for_room()
            finally:
                self._waiting -= 1

    def _wait_for_room(self) -> None:
        begun, before = time.monotonic(), self._failures
        while not self._is_stopping and not self._has_room():
            self._refuse_ended()
            waited, failures = time.monotonic() - begun, self._failures - before
            if failures >= FAILURES_MAX and waited >= FAILING_WAIT_S:
                raise BusyError(self._why_no_room(round(waited), failures))
            if waited >= self._room_timeout_s:
                raise BusyError(self._why_no_room(self._room_timeout_s, 0))
            self._wake.wait(min(self._room_timeout_s - waited, TICK_S))

    def _refuse_ended(self) -> None:
        """Refuse to write where nothing will be flushed any more, or another epoch owns it."""
        error = self.failure
        if isinstance(error, FencedError):
            raise FencedError(error.ours, error.theirs) from error
        if isinstance(error, PoisonedError):
            raise PoisonedError(str(error)) from error

    def _why_no_room(self, waited: float, failures: int) -> str:
        merges = (
            f", and too many rows are unmerged: {self._work.backlog()}" if self._is_overdue else ""
        )
        failure = "" if self.last_failure is None else f"; last failure: {self.last_failure}"
        step = (
            f"that failed {failures} times meanwhile; fix the cause and try again"
            if failures
            else "try again, write less at a time, or have a longer room_timeout_s or more"
            " memory_bytes_max"
        )
        return (
            f"{len(self._committer.state.view.sealed)} generations wait to be flushed, at most"
            f" {self._sealed_max} may{merges}; waited {waited:g} s{failure}; nothing was"
            f" written: {step}"
        )

    def _has_room(self) -> bool:
        committer = self._committer
        if committer.poisoned:
            return True  # the commit itself will say so
        return (
            not self._is_overdue
            and len(committer.state.view.sealed) < self._sealed_max
            and committer.active_bytes < 2 * self._memtable_bytes_max
        )

    def after_commit(self) -> None:
        """Without a background, do urgent work in the writer's thread.

        The commit is durable and visible, so it does not fail if this work fails; `room` checks
        again.
        """
        if self._is_background or self._committer.active_bytes < self._memtable_bytes_max:
            return
        try:
            self._work.checkpoint()
            if self._work.is_overdue():
                self._work.merge_here()
        except Exception as error:  # noqa: BLE001 - MemoryError, too
            self.failure = self.last_failure = error
            _log.warning(
                "a checkpoint after a commit failed and will be retried: %s", in_words(error)
            )

    def _loop(self) -> None:
        last_news = 0.0
        while True:
            with self._wake:
                if not self._is_woken and not self._is_stopping:
                    self._wake.wait(max(TICK_S, self._pause_s))
                self._is_woken = False
                if self._is_stopping:
                    return
            try:
                last_news = self._turn(last_news)
                self.failure, self._pause_s = None, 0.0
            except (PoisonedError, FencedError) as error:
                self.failure = self.last_failure = error
                _log.error("background work stops: %s", in_words(error))
                return
            except Exception as error:  # noqa: BLE001 - MemoryError, too: a dead thread helps nobody
                self.failure = self.last_failure = error
                self._pause_s = min(PAUSE_S_MAX, max(TICK_S, 2 * self._pause_s))
                _log.warning("background work failed and will be retried: %s", in_words(error))

    def _turn(self, last_news: float) -> float:
        is_full = self._waited_for(self._flush)
        now = self._clock()
        # A flush may be what makes a merge overdue, and writers wait for the news of one that is.
        if is_full or self._is_overdue or now - last_news >= NEWS_INTERVAL_S:
            last_news = now
            self._hear_news()
        self._vacuum_if_due(now)
        self._rest_if_idle(now)
        return last_news

    def _flush(self) -> bool:
        """Make the log's next segment, and memtables smaller; say whether any were full."""
        work = self._work
        work.prepare()
        while work.merge_runs():
            pass
        view = self._committer.state.view
        is_full = self._committer.active_bytes >= self._memtable_bytes_max or bool(view.sealed)
        if is_full:
            work.checkpoint()
            with self._wake:
                self._wake.notify_all()
        return is_full

    def _waited_for(self, work: Callable[[], T]) -> T:
        """Do what writers may wait for: they hear how often it fails."""
        try:
            return work()
        except Exception:
            self._failures += 1
            raise

    def _rest_if_idle(self, now: float) -> None:
        """Rest once between two commits; one that fails is tried again after as long."""
        seq = self._committer.state.visible
        if seq != self._last_seq:
            self._last_seq, self._idle_since = seq, now
        elif seq != self._rested_at and now - self._idle_since >= IDLE_S:
            self._idle_since = now
            if self._work.rest():
                self._rested_at = seq

    def _hear_news(self) -> None:
        """Take over what others published, let writers in that waited for it, and merge anew."""
        work = self._work
        work.refresh()
        is_overdue = work.is_overdue()
        with self._wake:
            was_overdue, self._is_overdue = self._is_overdue, is_overdue
            if was_overdue and not is_overdue:
                self._wake.notify_all()
        work.hurry(is_overdue and self._waiting > 0)
        self._waited_for(work.merge)
        work.optimize()
        if work.has_finished():
            self._do_aside("commit of optimized files", work.take_finished)

    def _vacuum_if_due(self, now: float) -> None:
        if now - self._vacuumed_at < self._vacuum_interval_s:
            return
        if self._do_aside("vacuum", self._work.vacuum):
            self._vacuumed_at = now

    def _do_aside(self, name: str, work: Callable[[], object]) -> bool:
        """Do some work in a thread of its own; False: the last of that name is not over."""
        before = self._aside.get(name)
        if before is not None and before.is_alive():
            return False

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - kept for `status`, and tried again
                self.last_failure = error
                _log.warning("%s failed and will be retried later: %s", name, in_words(error))

        thread = threading.Thread(target=guarded, name=f"siltstone-{name}", daemon=True)
        threads.start(thread)
        self._aside[name] = thread
        return True


# Each checkpoint adds a part to each history that it has rows for; at 10,000 a Lance manifest takes
# 1.7 MB a version, and a filtered count 0.7 s (measured).
HISTORY_PARTS_MAX = 200
MERGE_ROWS_MIN = 200_000
MERGE_SHARE = 0.2


def unmerged_index_bytes(view: View) -> int:
    """Return the bytes of the indexes of all un-merged history when loaded."""
    runs = (source for levels in view.levels.values() for source in levels.flushed)
    return sum(index_bytes(run) for run in runs if isinstance(run, HistoryRun))


def wants_optimize(view: View, tables: TableReader, *, parts_max: int = HISTORY_PARTS_MAX) -> bool:
    """Return whether a history has so many small parts that an optimize should join them."""
    return any(
        has_many_small(tables.open(s.history).spans, parts_max)
        for s in view.record.keyed
        if s.history is not None
    )


def has_many_small(spans: Sequence[Span], parts_max: int = HISTORY_PARTS_MAX) -> bool:
    """Return whether an optimize by tiers is worthwhile: many parts, half of them small."""
    if len(spans) <= parts_max:
        return False
    return sum(len(group) for group in Sizes(by_tiers=True).groups(spans)) > parts_max // 2


class KeyWatch:
    """Finds bases whose keys do not fit into memory and have no index; once for each version.

    For these a read by key is a scan. One thread.
    """

    def __init__(self, *, index_bytes_max: int) -> None:
        self._rows_max = index_bytes_max // INDEX_ROW_BYTES
        self._told: set[str] = set()

    def wants_index(self, view: View, tables: TableReader) -> bool:
        """Return whether an optimize should build an index, once."""
        lacking = {
            storage.base.path
            for storage in view.record.keyed
            if storage.base is not None
            and storage.base.rows + storage.base.hidden > max(self._rows_max, KEY_ROWS_MIN)
            and lacks_key(tables.open(storage.base))
        }
        fresh, self._told = lacking - self._told, lacking
        return bool(fresh)


def wants_merge(view: View) -> bool:
    """Return whether an overlay is worth a merge: few large merges beat many small ones.

    Scans over an overlay are cheap once its positions are known; a merge rewrites the parts that it
    changes.
    """
    for levels in view.levels.values():
        rows = sum(
            source.rows for source in levels.flushed if isinstance(source, Memtable | HistoryRun)
        )
        base = 0 if levels.base is None else levels.base.rows
        if rows >= max(MERGE_ROWS_MIN, MERGE_SHARE * base):
            return True
    return False
