"""Scheduler: the owner's background work, and the backpressure on writers when it lags.

    one thread:  next log segment · ladder of runs · checkpoint when the memtables are full ·
                 refresh to records of others · merge, optimize (child processes at nice 19) ·
                 idle work, after a minute without a commit
    another:     vacuum, once an hour, also of a store whose owners end before, or when it may free
                 much: it reads much, and no checkpoint may wait for it
    another:     commits of compacted plain tables; commits wait for room

A failure is logged and kept for `status`; the work is retried with a pause that doubles up to
`PAUSE_S_MAX`. Background work changes no result, so a delay loses nothing.

Backpressure: `room` slows writers while the background falls behind (`pace.py`), and lets them pass
while at most `sealed_generations_max` generations wait to be flushed, and while all that is not
merged fits its share of the memory; else they wait, and after `room_timeout_s` get BusyError. While
writers are slowed or wait for a merge, it gets more priority. If the work that a writer waits for
keeps failing, the writer gets the error after `FAILING_WAIT_S`. If the background has ended
(fenced, poisoned), every writer gets the error immediately.

Lock: the condition `_wake` guards the flags; no work is done under it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from siltstone.engine.commit.committer import Committer
from siltstone.engine.commit.write_set import WriteSet
from siltstone.engine.read.view import View
from siltstone.errors import (
    BusyError,
    FencedError,
    LanceRefusedError,
    PoisonedError,
    ReplacedError,
    in_words,
)
from siltstone.formats.manifest import KeyedStorage
from siltstone.maintenance.compaction.compaction import Sizes, Span
from siltstone.maintenance.schedule.pace import Pace, Zone
from siltstone.process import threads
from siltstone.storage.tables.tables import TableReader
from siltstone.telemetry.notices import NoticeLog

TICK_S = 0.25
NEWS_INTERVAL_S = 1.0
VACUUM_INTERVAL_S = 3600.0
SETTLED_S = 60.0
IDLE_S = 60.0
PAUSE_S_MAX = 5.0
FAILING_WAIT_S = 10.0
FAILURES_MAX = 3
"""A writer gets an error when the work it waits for failed this often, and for this long."""
_log = NoticeLog(__name__)
T = TypeVar("T")


class Work(Protocol):
    """The tasks of the background; `open.background.Background` has them.

    Each may raise a SiltstoneError and is then tried again.
    """

    def look(self) -> None:
        """Begin a turn: is the store in place, and do others see that it is owned?"""
        ...

    def prepare(self) -> None:
        """Make the log's next segment, if it needs one."""
        ...

    def merge_runs(self) -> bool:
        """Merge runs of the active memtables; say whether any were merged."""
        ...

    def checkpoint(self) -> object:
        """Flush what is sealed, and publish it."""
        ...

    def refresh(self) -> object:
        """Pick up what other processes published."""
        ...

    def hurry(self, is_waited_for: bool, /) -> None:
        """Hear, before each merge, whether writers wait for it."""
        ...

    def merge(self) -> int:
        """Begin a merge if there is enough to do; return its rows, 0 if there is none."""
        ...

    def is_merging(self) -> bool:
        """Say whether a merge is running."""
        ...

    def merge_here(self) -> None:
        """Merge in this thread: a writer's, where there is no background."""
        ...

    def optimize(self) -> None:
        """Begin an optimize if there is enough to do."""
        ...

    def has_finished(self) -> bool:
        """Say whether an optimize left files of plain tables to commit."""
        ...

    def take_finished(self) -> object:
        """Commit them."""
        ...

    def wants_vacuum(self) -> bool:
        """Say whether a vacuum may free much; asked at each turn, True once."""
        ...

    def vacuum(self) -> object:
        """Delete unneeded files."""
        ...

    def rest(self) -> bool:
        """Work after `IDLE_S` without a commit; return False if it must be called again."""
        ...

    def history_bytes(self) -> int:
        """Return what the indexes of history that is not merged take.

        If that alone is where writers are slowed, a writer merges if there is no background.
        """
        ...

    def refused(self) -> Mapping[int, str]:
        """Return why tables take no more rows, by their incarnations; all writers ask then."""
        ...


class Scheduler:
    """See the module. `start` starts the threads, `stop` ends them and waits for running work."""

    def __init__(
        self,
        committer: Committer,
        work: Work,
        *,
        memory_bytes_max: int,
        memtable_bytes_max: int,
        sealed_generations_max: int,
        room_timeout_s: float,
        is_background: bool,
        vacuum_interval_s: float = VACUUM_INTERVAL_S,
        vacuumed_s_ago: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._committer, self._work = committer, work
        self._memtable_bytes_max = memtable_bytes_max
        self._sealed_max = sealed_generations_max
        self._room_timeout_s = room_timeout_s
        self._wake = threading.Condition()
        self._is_woken = self._is_stopping = False
        self._thread: threading.Thread | None = None
        self.is_background = is_background
        self._pause_s = 0.0
        flushing = Zone(memtable_bytes_max, 2 * memtable_bytes_max)
        self._folding = Zone(memory_bytes_max // 8, memory_bytes_max // 2)
        self.pace = Pace(flushing=flushing, folding=self._folding, clock=clock)
        self._waiting = self._held_back = 0
        self._hurried_seq = committer.state.visible
        self._weighed: object = None  # the record whose history was too little for a merge
        self._failures = 0  # of flushes and merges, ever
        # One that is overdue waits until the program stays: a close waits for a running one.
        vacuumed_s_ago = max(0.0, min(vacuumed_s_ago, vacuum_interval_s - SETTLED_S))
        self._vacuum_interval_s, self._vacuumed_at = vacuum_interval_s, clock() - vacuumed_s_ago
        self._clock, self._idle_since, self._rested_at = clock, clock(), -1
        self._last_seq = -1
        self._aside: dict[str, threading.Thread] = {}
        self.failure: Exception | None = None
        """Why the last turn of the background failed; None: it did not."""
        self.last_failure: Exception | None = None

    def start(self) -> None:
        """Start the background, if it is on.

        Raises:
            UnavailableError: The system has no more threads.
        """
        if self.is_background:
            self._thread = threads.started(self._loop, "siltstone-scheduler")

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

    def failed(self, error: Exception) -> None:
        """Note why a turn failed; a writer that looks for room sees it from then on."""
        self.failure = self.last_failure = error
        self._committer.free = (), 0  # last: it may look meanwhile

    def grown(self, active_bytes: int) -> int:
        """Hear the size of the active memtables; return at which one it wants to hear it again.

        Called by the leader, never waits for work. Above their bound it hears of each group.
        """
        step = max(1 << 20, self._memtable_bytes_max // 8)
        if active_bytes >= min(step, self._memtable_bytes_max):  # else they are new
            with self._wake:
                self._is_woken = True
                self._wake.notify_all()
            return min(active_bytes + step, self._memtable_bytes_max)
        return min(step, self._memtable_bytes_max)

    def room(self, write_set: WriteSet) -> None:
        """Wait until a writer may continue.

        Without a background no writer is slowed: it flushes and merges itself. Nearly all writers
        see in `Committer.free` that they need not ask.

        Raises:
            BusyError: The wait took longer than `room_timeout_s`, or the work keeps failing;
                nothing was written.
            FencedError, PoisonedError: The background found that, and ended.
            UnavailableError: Lance refuses a table of the write set, and enough rows of it wait for
                that to change. Or, without a background, the checkpoint failed that makes room.
        """
        self._refuse_ended()
        self._refuse_full(write_set)
        self._committer.free = self._look()
        if self.failure is not None:  # also if it came just now: from here on all have to ask
            self._committer.free = (), 0
        if not self.is_background:
            if not self._has_room():
                self._work.checkpoint()
            return
        if self._is_slow():
            self._slow_down(write_set)
        if self._has_room():
            return
        begun = time.monotonic()
        try:
            self._wake_and_wait()
        finally:
            self.pace.stopped(time.monotonic() - begun)

    def _look(self) -> tuple[Sequence[object], int]:
        """Return what is sealed, and below how many active bytes no writer is held back then.

        A writer may put an older answer over a newer one: it lasts until the next news.
        """
        sealed, active = self._committer.state.view.sealed, self._committer.active_bytes
        if len(sealed) >= self._sealed_max or self._work.refused():
            return sealed, 0
        beside = self._unmerged_bytes() - active
        return sealed, min(self._memtable_bytes_max, self._folding.slow - beside)

    def _hear_history(self) -> None:
        self.pace.hears(self._work.history_bytes())
        self._committer.free = (), 0
        with self._wake:
            self._wake.notify_all()

    def _is_slow(self) -> bool:
        committer = self._committer
        return self.pace.is_slow(committer.state.view, committer.active_bytes)

    def _slow_down(self, write_set: WriteSet) -> None:
        """Wait as long as the pace says, or until writers are not slowed any more."""
        committer = self._committer
        delay_s = self.pace.delay_s(committer.state.view, committer.active_bytes, write_set)
        left_s = delay_s = min(delay_s, self._room_timeout_s)
        if delay_s <= 0:
            return
        end_s = time.monotonic() + delay_s
        try:
            with self._wake:
                self._waiting += 1
                try:
                    while left_s > 0 and not self._is_stopping and self._is_slow():
                        self._wake.wait(min(left_s, TICK_S))
                        left_s = end_s - time.monotonic()
                finally:
                    self._waiting -= 1
        finally:
            self.pace.slowed(delay_s - max(0.0, end_s - time.monotonic()))

    def _wake_and_wait(self) -> None:
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
        if isinstance(error, ReplacedError):
            raise ReplacedError(error.path, error.why) from error
        if isinstance(error, PoisonedError):
            raise PoisonedError(str(error)) from error

    def _refuse_full(self, write_set: WriteSet) -> None:
        """Refuse rows of a table that takes no more, for a reason that is no other table's."""
        refused = self._work.refused()
        for part in write_set.parts if refused else ():
            if part.incarnation in refused:
                raise LanceRefusedError(f"{refused[part.incarnation]}; nothing was written")

    def _why_no_room(self, waited: float, failures: int) -> str:
        unmerged = self._unmerged_bytes()
        merges = (
            f", and too many rows are unmerged: they take {unmerged / 1e6:.0f} MB of memory, at"
            f" most {self._folding.stop / 1e6:.0f} MB may wait; a merge is"
            f" {'running' if self._work.is_merging() else 'due'}"
            if unmerged >= self._folding.stop
            else ""
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
        view = committer.state.view
        return (
            not self.pace.is_stopped(view, committer.active_bytes)
            and len(view.sealed) < self._sealed_max
            and committer.active_bytes < 2 * self._memtable_bytes_max
        )

    def _unmerged_bytes(self) -> int:
        committer = self._committer
        return self.pace.unmerged_bytes(committer.state.view, committer.active_bytes)

    def after_commit(self) -> None:
        """Without a background, do urgent work in the writer's thread.

        The commit is durable and visible, so it does not fail if this work fails; `room` checks
        again.
        """
        is_full = self._committer.active_bytes >= self._memtable_bytes_max
        if not is_full and self._committer.shown.state.view.record is self._weighed:
            return
        try:
            self._work.look()
            if is_full:
                self._work.checkpoint()
            self._weighed = self._committer.state.view.record  # what is in history changes with it
            if self._work.history_bytes() > self._folding.slow:
                self._work.merge_here()
            self.failure = None
        except Exception as error:  # noqa: BLE001 - MemoryError, too
            self.failed(error)
            _log.warning(
                "a checkpoint or merge after a commit failed and will be retried: %s",
                in_words(error),
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
            except (PoisonedError, FencedError, ReplacedError) as error:
                self.failed(error)
                _log.error("background work stops: %s", in_words(error))
                return
            except Exception as error:  # noqa: BLE001 - MemoryError, too: a dead thread is no help
                self.failed(error)
                self._pause_s = min(PAUSE_S_MAX, max(TICK_S, 2 * self._pause_s))
                _log.warning("background work failed and will be retried: %s", in_words(error))

    def _turn(self, last_news: float) -> float:
        is_full = self._waited_for(self._flush)
        now = self._clock()
        # A flush may be what makes a merge due, and writers wait for the news of one that is.
        if is_full or self._is_slow() or now - last_news >= NEWS_INTERVAL_S:
            last_news = now
            self._hear_news()
        self._vacuum_if_due(now)
        self._rest_if_idle(now)
        return last_news

    def _flush(self) -> bool:
        """Make the log's next segment, and memtables smaller; say whether any were full."""
        work = self._work
        work.look()
        work.prepare()
        while work.merge_runs():
            pass
        view = self._committer.state.view
        is_full = self._committer.active_bytes >= self._memtable_bytes_max or bool(view.sealed)
        if is_full:
            self._checkpoint()
            self._hear_history()
        return is_full

    def _checkpoint(self) -> None:
        committer, is_done = self._committer, False
        self.pace.flush_begins(committer.state.view, committer.active_bytes)
        try:
            self._work.checkpoint()
            is_done = True
        finally:
            self.pace.flush_ends(is_done=is_done)

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
        self._hear_history()
        work.hurry(self._is_waited_for())
        self._waited_for(self._merge)
        work.optimize()
        if work.has_finished():
            self._do_aside("commit of optimized files", work.take_finished)

    def _is_waited_for(self) -> bool:
        """Say whether writers waited for a merge since the last look, or soon will.

        They soon will if they write, and history alone is where writers are slowed.
        """
        state = self._committer.state
        found = self.pace.backpressure(state.view, self._committer.active_bytes)
        held_back, seq = self._held_back, self._hurried_seq
        self._held_back = found.slowed_commits + found.stopped_commits
        self._hurried_seq = state.visible
        if state.visible > seq and self._work.history_bytes() > self._folding.slow:
            return True
        is_held_back = self._held_back > held_back or self._waiting > 0
        return is_held_back and found.unmerged_bytes > found.slow_bytes

    def _merge(self) -> None:
        try:
            rows = self._work.merge()
        except Exception:
            self.pace.fold_failed()
            raise
        if rows:
            self.pace.fold_begins(rows)

    def _vacuum_if_due(self, now: float) -> None:
        is_due = now - self._vacuumed_at >= self._vacuum_interval_s
        if not is_due and not self._work.wants_vacuum():
            return
        if self._do_aside("vacuum", self._work.vacuum):
            self._vacuumed_at = now

    def _do_aside(self, name: str, work: Callable[[], object]) -> bool:
        """Do some work in its own thread; False: the last of that name is not over."""
        before = self._aside.get(name)
        if before is not None and before.is_alive():
            return False

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - kept for `status`, and tried again
                self.last_failure = error
                _log.warning("%s failed and will be retried later: %s", name, in_words(error))

        self._aside[name] = threads.started(guarded, f"siltstone-{name}")
        return True


# Each checkpoint adds a part to each history that it has rows for; at 10,000 a Lance manifest takes
# 1.7 MB a version, and a filtered count 0.7 s (measured).
HISTORY_PARTS_MAX = 200


def wants_optimize(view: View, tables: TableReader, *, parts_max: int = HISTORY_PARTS_MAX) -> bool:
    """Return whether a history has so many small parts that an optimize should join them."""
    return any(is_crumbled(s, tables, parts_max=parts_max) for s in view.record.keyed)


def is_crumbled(
    storage: KeyedStorage, tables: TableReader, *, parts_max: int = HISTORY_PARTS_MAX
) -> bool:
    """Return whether the history of one table has so many small parts."""
    history = storage.history
    return history is not None and has_many_small(tables.open(history).spans, parts_max)


def has_many_small(spans: Sequence[Span], parts_max: int = HISTORY_PARTS_MAX) -> bool:
    """Return whether an optimize by tiers is worthwhile: many parts, half of them small."""
    if len(spans) <= parts_max:
        return False
    return sum(len(group) for group in Sizes(by_tiers=True).groups(spans)) > parts_max // 2
