"""Ready: what the first readers of the next view would build, built before the view is swapped.

    runs      the index of history that leaves memory, or that a merge cut, and where its rows lie
    overlay   which rows of base, and of the levels above it, are visible at the newest seq

The next view is made once to see what it will have, and once more under the committer's lock, since
commits change it meanwhile; that one gets what was built for the same files. Resident rows,
caches of rows and images are carried from base to base (`Base.carry`, `refresh`).

All of it is a cache. What no reader used in the view before is not built: it would take
memory for nothing. What does not fit, or cannot be read, is left to readers, who name the damage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.sources import Source
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import Levels, State, View
from siltstone.errors import SiltstoneError
from siltstone.maintenance.flush.refresh import shown_reader
from siltstone.telemetry.notices import NoticeLog

_log = NoticeLog(__name__)


class Ready(msgspec.Struct, frozen=True):
    """The levels of a view that was made to see what the next one will have, by incarnation."""

    levels: Mapping[int, Levels]

    def put_into(self, view: View) -> View:
        """Return the next view with what was built for the files that it has, too."""
        if not self.levels:
            return view
        levels = {
            number: _with(found, self.levels[number]) if number in self.levels else found
            for number, found in view.levels.items()
        }
        return view.changed(levels=levels)


def made_ready(state: State, ahead: View, readers: Readers) -> Ready:
    """Build what the first readers of `ahead`, which follows on a state, would build.

    It reads files, and holds no lock.
    """
    levels = dict[int, Levels]()
    for number, found in ahead.levels.items():
        old = state.view.levels.get(number)
        if old is None or (old.base is found.base and old.flushed == found.flushed):
            continue
        try:
            _load_runs(old, found.flushed)
            reader = (
                shown_reader(ahead, number, state.visible, readers) if old.kept.nbytes else None
            )
            if reader is not None:
                reader.overlay()  # it finds out what is visible; the next ones begin with it
        except SiltstoneError as error:  # readers of the table will get it
            _log.warning("%s is not ready to be read: %s", found.storage.folder, error)
            continue
        levels[number] = found
    return Ready(levels)


def _load_runs(old: Levels, flushed: Sequence[Source]) -> None:
    """Load the indexes of new runs whose rows had one before."""
    for run in flushed:
        if not isinstance(run, HistoryRun) or run in old.flushed:
            continue
        before = [s for s in old.sources if s.first_seq <= run.last_seq and s.last_seq > run.low]
        if all(each.indexed for each in before if isinstance(each, HistoryRun)):
            run.parts(run.high)  # it loads the index, and finds where the rows lie


def _with(levels: Levels, ready: Levels) -> Levels:
    if levels.storage != ready.storage:
        return levels  # a load straight to base came between
    runs = {(run.low, run.high): run for run in ready.flushed if isinstance(run, HistoryRun)}
    flushed = tuple(
        runs.get((source.low, source.high), source) if isinstance(source, HistoryRun) else source
        for source in levels.flushed
    )
    kept = ready.kept if levels.base is ready.base else levels.kept
    return replace(levels, flushed=flushed, kept=kept)
