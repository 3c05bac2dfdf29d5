"""Pace: how long a writer waits before its commit, so that the background keeps up with writers.

Two things wait for the background: the bytes of the active memtables for a flush, and all that is
not merged (memtables, and indexes of un-merged history) for a merge. Each has a zone:

    0 ───────────────── slow ──────────────────────────────────── stop
       writers at full         at a share x of the zone writers        writers wait
       speed                   have (1 - x) / x of the work's speed

Far below the middle of the zone they are hardly slowed, in the middle they are as fast as the work,
and towards its end slower and slower. So the backlog settles at the x where both are equally fast,
and a wrong guess of the speed only moves that x. The speed is measured: that of merges from the
begin of one to the begin of the next, or until now. A writer waits before a commit for what earlier
commits cost, at most `DELAY_S_MAX`; so a lone commit never waits.

Lock: one, held for additions. The sizes are assigned by one thread and read by all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from siltstone.engine.commit.write_set import AdvancePart, WriteSet
from siltstone.engine.read.view import Generation, View
from siltstone.maintenance.schedule.unmerged import sealed_bytes
from siltstone.telemetry.notices import NoticeLog

DELAY_S_MAX = 2.0
TELL_EVERY_S = 60.0
_DELAY_S_MIN = 0.001
_FLUSH_S = 2.0
_FOLD_S = 10.0
"""So long a zone's worth of work takes, as long as none was measured."""
_ROW_BYTES = 64

_log = NoticeLog(__name__)


class Zone(msgspec.Struct, frozen=True):
    """Where writers are slowed: from `slow` bytes on, less and less until they wait at `stop`."""

    slow: int
    stop: int

    def share(self, nbytes: int) -> float:
        """Return how far into the zone so many bytes are, from 0 to 1."""
        return min(1.0, max(0.0, (nbytes - self.slow) / (self.stop - self.slow)))


class Speed(msgspec.Struct, frozen=True):
    """A speed that was guessed, or is the mean of what was measured; the newest counts half."""

    value: float
    is_guessed: bool = True

    def after(self, measured: float) -> Speed:
        """Return the speed after one more measurement; the first one replaces the guess."""
        old = measured if self.is_guessed else self.value
        return Speed((old + measured) / 2, is_guessed=False)


@dataclass(frozen=True, slots=True)
class Backpressure:
    """What waits to be merged, where writers are slowed and stopped, and how often they were.

    Bytes of memtables and of the indexes of un-merged history; counts and seconds since the open.
    """

    unmerged_bytes: int = 0
    slow_bytes: int = 0
    stop_bytes: int = 0
    slowed_commits: int = 0
    slowed_s: float = 0.0
    stopped_commits: int = 0
    stopped_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.slowed_commits} commits slowed for {self.slowed_s:.1f} s,"
            f" {self.stopped_commits} stopped for {self.stopped_s:.1f} s;"
            f" {self.unmerged_bytes} bytes not merged, slow from {self.slow_bytes},"
            f" stop at {self.stop_bytes}"
        )


class Pace:
    """See the module."""

    def __init__(
        self, *, flushing: Zone, folding: Zone, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._flushing, self._folding, self._clock = flushing, folding, clock
        self._lock = threading.Lock()
        self._flush_speed = Speed((flushing.stop - flushing.slow) / _FLUSH_S)
        self._fold_speed = Speed((folding.stop - folding.slow) / _ROW_BYTES / _FOLD_S)
        self._history_bytes = 0
        self._sealed: tuple[Sequence[Generation], int] = (), 0
        self._free_at = 0.0
        self._flush: tuple[float, int] | None = None
        self._fold: tuple[float, int, int] | None = None
        self._slowed, self._slowed_s, self._stopped, self._stopped_s = 0, 0.0, 0, 0.0
        self._told_at = -TELL_EVERY_S

    # what waits: set by the scheduler's thread

    def hears(self, history_bytes: int) -> None:
        """Set the bytes of the indexes of all history that is not merged."""
        self._history_bytes = history_bytes

    def flush_begins(self, view: View, active_bytes: int) -> None:
        """Count a flush of all memtables that begins."""
        nbytes = self.unmerged_bytes(view, active_bytes) - self._history_bytes
        self._flush = self._clock(), nbytes

    def flush_ends(self, *, is_done: bool) -> None:
        """Count the flush that began last: how fast they are. Small ones tell nothing."""
        begun, self._flush = self._flush, None
        if begun is None or not is_done:
            return
        took_s, nbytes = self._clock() - begun[0], begun[1]
        if nbytes >= self._flushing.slow // 2 and took_s > 0:
            self._flush_speed = self._flush_speed.after(nbytes / took_s)

    def fold_begins(self, rows: int) -> None:
        """Count a merge of so many rows that begins; the one before tells how fast they are.

        Only if it kept writers waiting: else it was not as fast as it could, nor as large.
        """
        now, before = self._clock(), self._fold
        self._fold = now, rows, self._slowed + self._stopped
        if before is not None and now > before[0] and self._slowed + self._stopped > before[2]:
            self._fold_speed = self._fold_speed.after(before[1] / (now - before[0]))

    def fold_failed(self) -> None:
        """Forget the merge that began last."""
        self._fold = None

    # writers: any thread

    def unmerged_bytes(self, view: View, active_bytes: int) -> int:
        """Return the bytes of all that is not merged, but for flushed memtables that stay."""
        sealed = self._sealed
        if sealed[0] is not view.sealed:
            self._sealed = sealed = view.sealed, sealed_bytes(view.sealed)
        return active_bytes + sealed[1] + self._history_bytes

    def is_stopped(self, view: View, active_bytes: int) -> bool:
        """Return whether so much is not merged that writers wait."""
        return self.unmerged_bytes(view, active_bytes) >= self._folding.stop

    def is_slow(self, view: View, active_bytes: int) -> bool:
        """Return whether writers are slowed."""
        is_folding = self.unmerged_bytes(view, active_bytes) > self._folding.slow
        return is_folding or active_bytes > self._flushing.slow

    def delay_s(self, view: View, active_bytes: int, write_set: WriteSet) -> float:
        """Return how long to wait before a commit; later commits wait for what it costs."""
        unmerged = self._folding.share(self.unmerged_bytes(view, active_bytes))
        unflushed = self._flushing.share(active_bytes)
        cost_s = max(
            _cost_s(unmerged, _rows(write_set) / self._so_far(self._fold_speed, self._fold)),
            _cost_s(unflushed, write_set.nbytes / self._so_far(self._flush_speed, self._flush)),
        )
        with self._lock:
            now = self._clock()
            free_at = max(now, self._free_at)
            self._free_at = min(free_at + cost_s, now + DELAY_S_MAX)
        return free_at - now if free_at - now >= _DELAY_S_MIN else 0.0

    def _so_far(self, speed: Speed, begun: tuple[float, int, *tuple[int, ...]] | None) -> float:
        """Return the speed of work; that of the running one so far, if it is slower."""
        took_s = 0.0 if begun is None else self._clock() - begun[0]
        if begun is None or took_s <= 0:
            return speed.value
        return min(speed.value, max(1, begun[1]) / took_s)

    def slowed(self, seconds: float) -> None:
        """Count a commit that was slowed."""
        with self._lock:
            self._slowed, self._slowed_s = self._slowed + 1, self._slowed_s + seconds
        self._tell()

    def stopped(self, seconds: float) -> None:
        """Count a commit that was stopped, also one that was refused then."""
        with self._lock:
            self._stopped, self._stopped_s = self._stopped + 1, self._stopped_s + seconds
        self._tell()

    def _tell(self) -> None:
        """Tell that writers are held back, at most once in `TELL_EVERY_S`."""
        with self._lock:
            now = self._clock()
            is_due = now - self._told_at >= TELL_EVERY_S
            if is_due:
                self._told_at = now
        if is_due:
            _log.info(
                "writers are held back: since the open %d commits were slowed for %.1f s, and %d"
                " stopped for %.1f s; checkpoints and merges lag",
                *(self._slowed, self._slowed_s, self._stopped, self._stopped_s),
            )

    def backpressure(self, view: View, active_bytes: int) -> Backpressure:
        """Return the sizes and the counts, at one moment."""
        with self._lock:
            sizes = self.unmerged_bytes(view, active_bytes), self._folding.slow, self._folding.stop
            counts = self._slowed, self._slowed_s, self._stopped, self._stopped_s
            return Backpressure(*sizes, *counts)


def _cost_s(share: float, work_s: float) -> float:
    """Return how long writers leave to work of `work_s` at a share of its zone."""
    return work_s * share / (1 - share) if share < 1 else DELAY_S_MAX


def _rows(write_set: WriteSet) -> int:
    """Return the rows that a merge will fold: not those of plain tables."""
    return sum(part.rows for part in write_set.parts if not isinstance(part, AdvancePart))
