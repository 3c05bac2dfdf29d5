"""Loop commits: what an event loop needs of the store that its process owns.

The commits of a loop have ids that a task may know before they are through: `outcome` must not
promise of one that is `under_way` that it never comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from siltstone.engine.catalog.commit_log import transaction_id
from siltstone.engine.commit.core import Core
from siltstone.engine.commit.news import News
from siltstone.engine.commit.reservations import Reservations
from siltstone.engine.commit.write_set import Receipt, WriteSet
from siltstone.local.group_upserts import GroupUpserts, PlannedTable
from siltstone.process.given_ids import NotedNumbers


class LoopCommits:
    """See the module. The loop's thread, but `commit`, which waits for the sync of its group."""

    def __init__(self, core: Core, reservations: Reservations, under_way: set[str]) -> None:
        """Take over the handle with this core: its numbers are noted from here on.

        `under_way`: the ids of commits that began and are not known to have ended.
        """
        self._core, self._reservations = core, reservations
        self._upserts = GroupUpserts(core)
        # What the store keeps of these must not keep the handle.
        self.id_of = partial(transaction_id, core.state().view.record.epoch)
        self._is_over = partial(_is_over, under_way)
        core.numbers = NotedNumbers(core.numbers, self.id_of)
        reservations.add(self._is_over)

    def end(self) -> None:
        """Forget the handle; it is closed."""
        self._reservations.remove(self._is_over)

    def table(self, table_id: int) -> PlannedTable | None:
        """Return how rows of a table become write sets; None: they go alone.

        Raises:
            ClosedError, ReadOnlyError: Nothing can be written.
        """
        return self._upserts.table(table_id)

    @property
    def news(self) -> News:
        """Where to hear of the next commit."""
        return self._core.writer().news

    def commit(self, made: Sequence[WriteSet]) -> list[Receipt | BaseException | None]:
        """Commit in one group; see `GroupUpserts.commit`."""
        return self._upserts.commit(made)


def _is_over(under_way: set[str], asked: str) -> bool:
    """Say whether no commit of an id is under way."""
    return asked not in under_way
