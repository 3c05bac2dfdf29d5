"""Background: what the owner's scheduler runs, and when it is due (`scheduler.Work`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from siltstone.formats.manifest import Record
from siltstone.maintenance.flush.fallback import FALLBACK_BYTES_MAX, full
from siltstone.maintenance.gc.superseded import Superseded
from siltstone.maintenance.merge.unordered import unordered
from siltstone.maintenance.schedule.scheduler import wants_optimize
from siltstone.maintenance.schedule.stalled import Stalled
from siltstone.maintenance.schedule.unmerged import history_bytes, unmerged_rows, wants_merge
from siltstone.open.parts import Owner
from siltstone.storage.tables.tables import TableReader
from siltstone.telemetry.works import WorkTimes


@dataclass(frozen=True, slots=True)
class Background:
    """See the module. The scheduler's threads call it."""

    owner: Owner
    reader: TableReader
    memory_bytes_max: int
    superseded: Superseded
    fallback_bytes_max: int = FALLBACK_BYTES_MAX
    stalled: Stalled = field(default_factory=Stalled)
    ordering: set[int] = field(default_factory=set)
    """The bases that a merge was begun for, to give them an order: once, whatever came of it."""
    merges: WorkTimes = field(default_factory=lambda: WorkTimes("merge"))
    """Counts those of a writer's thread; children count for themselves."""

    def look(self) -> None:
        """Begin a turn of work, unless the directory is another store's by now."""
        self.owner.ownership.require_in_place()
        self.owner.ownership.recovered()  # a reader may have held MARK when the store was opened

    def prepare(self) -> None:
        if self.owner.wal.wants_next:
            self.owner.wal.prepare()

    def merge_runs(self) -> bool:
        """Merge runs of the active memtables into larger tiers; say whether any were."""
        levels = self.owner.committer.state.view.levels.values()
        merged = [each.active.merge_runs() for each in levels]
        return any(merged)

    def checkpoint(self) -> Record:
        return self.owner.checkpointer.checkpoint()

    def refresh(self) -> None:
        self.owner.checkpointer.refresh()

    def hurry(self, is_waited_for: bool, /) -> None:
        self.owner.merge_child.hurry(is_waited_for)

    def merge(self) -> int:
        """Start a merge if it is worth one; return the rows that it will fold."""
        child = self.owner.merge_child
        if child.is_running:
            return 0
        try:
            child.reap()
        finally:
            if child.failure is not None:
                self.owner.checkpointer.refresh()  # it may have ended just now
            view = self.owner.committer.state.view
            self.stalled.ended(view, child.failure)
        unsorted = unordered(view.record) - self.ordering
        wanted = wants_merge(view, self.memory_bytes_max, self.stalled.held_back(view))
        if not (wanted or unsorted) or not child.start():
            return 0
        self.ordering.update(unsorted)
        self.stalled.begins(view)
        return unmerged_rows(view)

    def is_merging(self) -> bool:
        return self.owner.merge_child.is_running

    def merge_here(self) -> None:
        with self.owner.checkpointer.refreshing():
            self.merges.run(self.owner.merger.merge, str)

    def optimize(self) -> None:
        """Start an optimize if it is worth one."""
        view = self.owner.committer.state.view
        if not self.owner.optimize_child.is_running and wants_optimize(view, self.reader):
            self.owner.optimize_child.start()

    def has_finished(self) -> bool:
        return self.owner.optimizer.has_left()

    def take_finished(self) -> None:
        self.owner.optimizer.take_finished()

    def wants_vacuum(self) -> bool:
        return self.superseded.wants_vacuum(self.owner.committer.state.view.record)

    def vacuum(self) -> None:
        self.superseded.timed(self.owner.vacuum.run)

    def rest(self) -> bool:
        return self.owner.rest.when_idle()

    def history_bytes(self) -> int:
        return history_bytes(self.owner.committer.state.view, self.stalled.tables)

    def refused(self) -> Mapping[int, str]:
        view = self.owner.committer.state.view
        stalled = self.stalled.full(view, self.memory_bytes_max // 2)
        return stalled | full(view.record, self.fallback_bytes_max)
