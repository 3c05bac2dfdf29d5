"""Live store: what a vacuum must know of the frames above the newest record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from siltstone.engine.commit.committer import Committer
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.read.view import View
from siltstone.engine.recover.following import Follower
from siltstone.errors import BusyError
from siltstone.formats.manifest import Catalog, Pin, Tag
from siltstone.maintenance.flush.checkpoint import Checkpointer


class LiveStore(Protocol):
    """What the frames above the newest record say; an owner has it in memory."""

    def catalog(self) -> Catalog:
        """Return the catalog as of the visible seq."""
        ...

    def renew(self) -> object:
        """Take over the newest record, and let go of older ones."""
        ...

    def forget(self, tag: Tag) -> object:
        """Forget a tag by a commit, unless it was set again meanwhile."""
        ...

    def attached(self) -> Iterator[Pin]:
        """Yield the pins of bulk commits whose rows are in no record yet."""
        ...


class OwnerLive:
    """`LiveStore` in the owner's process, for as long as it owns the store.

    A vacuum may outlast that: another thread closes the store. From then on memory knows neither
    what the log names (`Owner.close` lets go of it) nor what a next owner commits.
    """

    def __init__(
        self,
        committer: Committer,
        checkpointer: Checkpointer,
        forget: Callable[[Tag], object],
        require_held: Callable[[], None],
    ) -> None:
        """`require_held` raises ClosedError once the store is not owned any more."""
        self._committer, self._checkpointer, self._forget = committer, checkpointer, forget
        self._require_held = require_held

    def _view(self) -> View:
        view = self._committer.state.view
        self._require_held()  # after it was taken: until then nothing was let go of
        return view

    def catalog(self) -> Catalog:
        return self._view().catalog

    def renew(self) -> object:
        return self._checkpointer.renew()

    def forget(self, tag: Tag) -> object:
        return self._forget(tag)

    def attached(self) -> Iterator[Pin]:
        return _attached(self._view())


class LiveWithoutOwner:
    """`LiveStore` beside an owner that is alive: what is durable in its log.

    Of an owner that died, or has not recovered the log yet, MARK may not know all that is durable:
    so it must be the same one before and after each look.

    Args:
        follower: Reads the log up to MARK.
        epoch: That of the owner which is alive and has recovered the log; None for nobody.
    """

    def __init__(self, follower: Follower, epoch: Callable[[], int | None]) -> None:
        self._follower, self._epoch = follower, epoch
        self._first_epoch = epoch()

    def _view(self) -> View:
        view = self._follower.state().view
        if self._first_epoch is None or self._epoch() != self._first_epoch:
            raise BusyError("the store has no owner yet, or its owner ended meanwhile; call again")
        return view

    def catalog(self) -> Catalog:
        return self._view().catalog

    def renew(self) -> object:
        return self._follower.close()  # the next look begins at the newest record

    def forget(self, tag: Tag) -> object:
        """Leave it to the owner's vacuum: a tag goes by a commit."""

    def attached(self) -> Iterator[Pin]:
        return _attached(self._view())


def _attached(view: View) -> Iterator[Pin]:
    for levels in view.levels.values():
        for source in levels.sealed:
            if isinstance(source, HistoryRun):
                yield source.table.pin
