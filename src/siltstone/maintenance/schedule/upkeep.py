"""Upkeep: what an owner that ends does for its store, while it still owns it.

    final checkpoint ─▶ log closed ─▶ LOCK says that the owner ends ─▶ look what is due
      ─▶ merge ─▶ optimize ─▶ vacuum, those that are due ─▶ LOCK released

After that nothing that siltstone started by itself runs, or touches the directory. A merge and an
optimize run in a child that is waited for, and killed when the time of the end is over: a call of
Lance cannot be interrupted within this process. The vacuum runs here, in steps. All the stores of
an exit share the time of one `Ending`. It is cut short, too, by a signal that waits for the end of
`close` (Ctrl-C), and by a process that waits to own the store. Killed anywhere it costs nothing.

What did not fit is noted in OWED (`overdue.py`), left to `siltstone maintain`, and tried again at
an end when its rows have doubled.

The log is closed: lapsed tags and plain tables, which only a commit can change, are left to an
owner that goes on.

Lock: none; the thread that closes the store calls, any thread may call `Ending.stop`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import msgspec

from siltstone.arguments import flag_of
from siltstone.engine.commit import interrupts
from siltstone.engine.read.view import View
from siltstone.errors import SiltstoneError, in_words
from siltstone.failpoints import Failpoint, cross
from siltstone.maintenance.gc.sweep import StoppedError
from siltstone.maintenance.gc.vacuum import Vacuum
from siltstone.maintenance.merge.merge_child import MergeChild
from siltstone.maintenance.schedule.overdue import Owed, due_steps, may_want_merge
from siltstone.options import Options
from siltstone.storage.manifest.ownership import Ownership
from siltstone.storage.site import Site
from siltstone.telemetry.notices import NoticeLog

GROWTH = 2
"""A step that did not fit is tried again when it is about so many times as many rows."""
FAIR_SHARE = 0.5
"""Of the time of an end: a step that had less of it has not shown that it does not fit."""
_log = NoticeLog(__name__)

Progress = Callable[[str, int, int], object]
"""Called with the next step, the number of steps done, and of all."""


class Ending:
    """How a store ends, or all the stores of an exit: whether with an upkeep, and for how long.

    Args:
        upkeep: None: with one if the owner has a background.
        seconds: The time for all stores together; None: `close_upkeep_s` of each, together with
            what the stores before it took.
        on_progress: Called with each step.
    """

    def __init__(
        self,
        upkeep: bool | None = None,
        *,
        seconds: float | None = None,
        on_progress: Progress = lambda _what, _done, _all: None,
    ) -> None:
        self.upkeep, self._seconds, self.on_progress = upkeep, seconds, on_progress
        self.spent_s = self.mirrored_s = 0.0
        self.done: list[str] = []
        self.left: list[str] = []
        self._is_stopped = False

    @classmethod
    def asked(cls, upkeep: bool | None, on_progress: Progress | None) -> Ending:
        """Return how a store ends that is closed; without an upkeep in a signal's handler.

        Raises:
            RequestError: `upkeep` is neither True nor False, nor None.
        """
        if upkeep is not None:
            flag_of("upkeep", upkeep)
        elif interrupts.is_in_handler():
            upkeep = False
        return cls(upkeep, on_progress=on_progress or (lambda _what, _done, _all: None))

    def is_wanted(self, options: Options) -> bool:
        """Say whether a store with these options ends with an upkeep."""
        is_asked = options.background if self.upkeep is None else self.upkeep
        return is_asked and self.seconds_of(options) > 0

    def seconds_of(self, options: Options) -> float:
        """Return the time that a store with these options may take, as if it were the first."""
        return options.close_upkeep_s if self._seconds is None else self._seconds

    def stop(self) -> None:
        """End the upkeep of all stores at the next step, and kill a child. Any thread."""
        self._is_stopped = True

    @property
    def is_stopped(self) -> bool:
        """Whether a caller waits for the end: who called `stop`, or the handler of a signal."""
        return self._is_stopped or interrupts.is_pending()


class Workers(msgspec.Struct, frozen=True):
    """What does the steps; `vacuum` is one that adds no frame to the log."""

    merge: MergeChild
    optimize: MergeChild
    vacuum: Vacuum


class Upkeep:
    """The upkeep of one owner; see the module.

    Args:
        site: The store.
        options: Those of the owner.
        ownership: Still held when `run` is called.
        workers: What does the steps.
        is_on: False: there is none, whatever an end asks for.
    """

    def __init__(
        self, site: Site, options: Options, ownership: Ownership, workers: Workers, *, is_on: bool
    ) -> None:
        self.is_on = is_on
        self._site, self._options, self._ownership = site, options, ownership
        self._workers, self._owed = workers, Owed(site)

    def run(self, view: View, ending: Ending) -> None:
        """Do what is due of what a view has flushed, as far as it fits; never raises."""
        if not (self.is_on and ending.is_wanted(self._options)) or ending.is_stopped:
            return
        try:
            self._ownership.require_in_place()
            self._run(view, ending)
        except Exception as error:  # noqa: BLE001 - the store must close whatever Lance raises
            _log.warning("the upkeep at the end of the store failed: %s", in_words(error))

    def _run(self, view: View, ending: Ending) -> None:
        at = _Time(ending, self._options, self._ownership, time.monotonic())
        if may_want_merge(view.record, self._options.memory_bytes_max):
            self._ownership.end()  # the look opens histories, and may import Lance
        try:
            left, before = self._done(view, at)
        finally:
            ending.spent_s += time.monotonic() - at.begun
        ending.left += left
        if left != before:
            self._owed.write(left)

    def _done(self, view: View, at: _Time) -> tuple[dict[str, int], Mapping[str, int]]:
        """Look what is due, and do it; return what is left of it, and what was before."""
        due = due_steps(view, self._site, self._options.memory_bytes_max)
        before, is_asked = self._owed.read(), at.ending.upkeep
        wanted = due if is_asked else {s: n for s, n in due.items() if _is_worth(n, before, s)}
        left = {step: before[step] for step in due if step not in wanted}
        if wanted:
            self._ownership.end()
            left |= self._steps(wanted, before, at)
        return left, before

    def _steps(
        self, wanted: Mapping[str, int], before: Mapping[str, int], at: _Time
    ) -> dict[str, int]:
        """Do steps; return what is left of them, with the rows to compare with at a later end."""
        left: dict[str, int] = {}
        for number, (step, rows) in enumerate(wanted.items()):
            at.ending.on_progress(step, number, len(wanted))
            share = at.left_s
            try:
                is_done = not at.is_over() and self._do(step, at)
            except SiltstoneError as error:
                _log.warning("%s at the end of the store failed: %s", step, in_words(error))
                left[step] = rows
                continue
            if is_done:
                at.ending.done.append(step)
            else:
                is_too_large = at.left_s <= 0 and share >= FAIR_SHARE * at.seconds
                left[step] = rows if is_too_large else before.get(step, 0)
        at.ending.on_progress("", len(wanted), len(wanted))
        return left

    def _do(self, step: str, at: _Time) -> bool:
        """Do one step; False: it was cut short."""
        if step == "merge":
            is_done = self._workers.merge.run(at.is_over)
            cross(Failpoint.END_AFTER_MERGE)
        elif step == "optimize":
            is_done = self._workers.optimize.run(at.is_over, "--histories")
            cross(Failpoint.END_AFTER_OPTIMIZE)
        else:
            is_done = self._is_vacuumed(at)
            cross(Failpoint.END_AFTER_VACUUM)
        return is_done

    def _is_vacuumed(self, at: _Time) -> bool:
        try:
            self._workers.vacuum.run(step=at.check)
        except StoppedError:
            return False
        return True


def _is_worth(rows: int, before: Mapping[str, int], step: str) -> bool:
    return rows >= GROWTH * before.get(step, 0)


class _Time(msgspec.Struct, frozen=True):
    """The time of one store: over when it has passed, or a caller waits for the end."""

    ending: Ending
    options: Options
    ownership: Ownership
    begun: float

    @property
    def seconds(self) -> float:
        return self.ending.seconds_of(self.options)

    @property
    def left_s(self) -> float:
        if self.seconds == math.inf:
            return math.inf
        return self.seconds - self.ending.spent_s - (time.monotonic() - self.begun)

    def is_over(self) -> bool:
        return self.left_s <= 0 or self.ending.is_stopped or self.ownership.is_wished()

    def check(self) -> None:
        """Let a step go on.

        Raises:
            StoppedError: The time is over.
        """
        if self.is_over():
            raise StoppedError
