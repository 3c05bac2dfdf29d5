"""Background: what the owner's scheduler runs, and when it is due."""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.maintenance.schedule.scheduler import (
    KeyWatch,
    Work,
    unmerged_index_bytes,
    wants_merge,
    wants_optimize,
)
from siltstone.open.parts import Owner
from siltstone.storage.tables.tables import TableReader


@dataclass(frozen=True, slots=True)
class Background:
    """See the module. The scheduler's threads call it."""

    owner: Owner
    reader: TableReader
    keys: KeyWatch
    memory_bytes_max: int

    def work(self) -> Work:
        """Return what the scheduler runs."""
        owner = self.owner
        return Work(
            checkpoint=owner.checkpointer.checkpoint,
            refresh=owner.checkpointer.refresh,
            prepare=self._prepare,
            merge_runs=self._merge_runs,
            merge=self._merge,
            vacuum=owner.vacuum.run,
            is_overdue=self._is_overdue,
            hurry=self._hurry,
            backlog=self._backlog,
            merge_here=self._merge_here,
            optimize=self._optimize,
            has_finished=owner.optimizer.has_left,
            take_finished=owner.optimizer.take_finished,
            rest=owner.rest.when_idle,
        )

    def _prepare(self) -> None:
        """Begin a turn of the background, unless the directory is another store's by now."""
        self.owner.ownership.require_in_place()
        if self.owner.wal.wants_next:
            self.owner.wal.prepare()

    def _merge_runs(self) -> bool:
        """Merge runs of the active memtables into larger tiers; say whether any were."""
        levels = self.owner.committer.state.view.levels.values()
        merged = [each.active.merge_runs() for each in levels]
        return any(merged)

    def _unmerged_bytes(self) -> int:
        return unmerged_index_bytes(self.owner.committer.state.view)

    @property
    def _unmerged_bytes_max(self) -> int:
        return self.memory_bytes_max // 6

    def _merge(self) -> None:
        """Start a merge if it is worth one."""
        if not self.owner.merge_child.is_running and (
            wants_merge(self.owner.committer.state.view)
            or self._unmerged_bytes() > self.memory_bytes_max // 8 // 2
        ):
            self.owner.merge_child.start()

    def _is_overdue(self) -> bool:
        return self._unmerged_bytes() > self._unmerged_bytes_max

    def _hurry(self, is_waited_for: bool) -> None:
        self.owner.merge_child.hurry(is_waited_for=is_waited_for)

    def _backlog(self) -> str:
        return (
            f"its indexes take {self._unmerged_bytes() / 1e6:.0f} MB of memory, at most"
            f" {self._unmerged_bytes_max / 1e6:.0f} MB may wait; a merge is"
            f" {'running' if self.owner.merge_child.is_running else 'due'}"
        )

    def _merge_here(self) -> None:
        self.owner.merger.merge()
        self.owner.checkpointer.refresh()

    def _optimize(self) -> None:
        """Start an optimize if it is worth one."""
        view = self.owner.committer.state.view
        if not self.owner.optimize_child.is_running and (
            wants_optimize(view, self.reader) or self.keys.wants_index(view, self.reader)
        ):
            self.owner.optimize_child.start()
