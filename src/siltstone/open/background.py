"""Background: what the owner's scheduler runs, and when it is due."""

from __future__ import annotations

from dataclasses import dataclass

from siltstone.engine.commit.committer import Committer
from siltstone.maintenance.flush.checkpoint import Checkpointer
from siltstone.maintenance.flush.idle import Rest
from siltstone.maintenance.gc.vacuum import Vacuum
from siltstone.maintenance.merge.merge_child import MergeChild
from siltstone.maintenance.schedule.scheduler import (
    KeyWatch,
    Work,
    unmerged_index_bytes,
    wants_merge,
    wants_optimize,
)
from siltstone.open.environment import Maintainers
from siltstone.storage.manifest.ownership import Ownership
from siltstone.storage.tables.tables import Tables
from siltstone.storage.wal.wal import Wal


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """See the module. The scheduler's threads call it."""

    ownership: Ownership
    wal: Wal
    committer: Committer
    checkpointer: Checkpointer
    tables: Tables
    maintainers: Maintainers
    vacuum: Vacuum
    rest: Rest
    merge_child: MergeChild
    optimize_child: MergeChild
    keys: KeyWatch
    memory_bytes_max: int

    def work(self) -> Work:
        """Return what the scheduler runs."""
        optimizer = self.maintainers.optimizer
        return Work(
            checkpoint=self.checkpointer.checkpoint,
            refresh=self.checkpointer.refresh,
            prepare=self._prepare,
            merge_runs=self._merge_runs,
            merge=self._merge,
            vacuum=self.vacuum.run,
            is_overdue=self._is_overdue,
            hurry=self._hurry,
            backlog=self._backlog,
            merge_here=self._merge_here,
            optimize=self._optimize,
            has_finished=optimizer.has_left,
            take_finished=optimizer.take_finished,
            rest=self.rest.when_idle,
        )

    def _prepare(self) -> None:
        """Begin a turn of the background, unless the directory is another store's by now."""
        self.ownership.require_in_place()
        if self.wal.wants_next:
            self.wal.prepare()

    def _merge_runs(self) -> bool:
        """Merge runs of the active memtables into larger tiers; say whether any were."""
        levels = self.committer.state.view.levels.values()
        merged = [each.active.merge_runs() for each in levels]
        return any(merged)

    def _unmerged_bytes(self) -> int:
        return unmerged_index_bytes(self.committer.state.view)

    @property
    def _unmerged_bytes_max(self) -> int:
        return self.memory_bytes_max // 6

    def _merge(self) -> None:
        """Start a merge if it is worth one."""
        if not self.merge_child.is_running and (
            wants_merge(self.committer.state.view)
            or self._unmerged_bytes() > self.memory_bytes_max // 8 // 2
        ):
            self.merge_child.start()

    def _is_overdue(self) -> bool:
        return self._unmerged_bytes() > self._unmerged_bytes_max

    def _hurry(self, is_waited_for: bool) -> None:
        self.merge_child.hurry(is_waited_for=is_waited_for)

    def _backlog(self) -> str:
        return (
            f"its indexes take {self._unmerged_bytes() / 1e6:.0f} MB of memory, at most"
            f" {self._unmerged_bytes_max / 1e6:.0f} MB may wait; a merge is"
            f" {'running' if self.merge_child.is_running else 'due'}"
        )

    def _merge_here(self) -> None:
        self.maintainers.merger.merge()
        self.checkpointer.refresh()

    def _optimize(self) -> None:
        """Start an optimize if it is worth one."""
        view, reader = self.committer.state.view, self.tables.reader
        if not self.optimize_child.is_running and (
            wants_optimize(view, reader) or self.keys.wants_index(view, reader)
        ):
            self.optimize_child.start()
