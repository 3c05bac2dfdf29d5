"""Live store: what a vacuum must know of the frames above the newest record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from siltstone.engine.commit.core import Core
from siltstone.engine.commit.write_set import BLIND, WriteSet
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.read.view import View
from siltstone.engine.recover.following import Follower
from siltstone.errors import BusyError, ConflictError
from siltstone.formats.log import group
from siltstone.formats.manifest import Pin, Tag
from siltstone.maintenance.flush.checkpoint import Checkpointer
from siltstone.storage.manifest.ownership import Ownership


class LiveStore(Protocol):
    """The contents of the frames above the newest record; an owner has them in memory."""

    def view(self) -> View:
        """Return the view as of the visible seq."""
        ...

    def renew(self) -> object:
        """Refresh to the newest record, and release older ones."""
        ...

    def forget(self, tag: Tag, /) -> object:
        """Remove a tag with a commit, unless it was set again meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class OwnerLive:
    """`LiveStore` in the owner's process, for as long as it owns the store.

    Another thread may close the store during a vacuum. From then on memory has neither the files in
    the log (`Owner.close` releases them) nor the commits of the next owner: `view` raises
    ClosedError once the store is not owned any more.
    """

    core: Core
    checkpointer: Checkpointer
    ownership: Ownership
    forgets_tags: bool = True
    """False: nothing can be committed any more, and the next owner forgets them."""

    def view(self) -> View:
        view = self.core.state().view
        self.ownership.require_in_place()  # after it was taken: until then nothing was let go of
        self.core.site.manifests.require_ours(self.core.state().view.record)
        return view

    def renew(self) -> object:
        return self.checkpointer.renew()

    def forget(self, tag: Tag) -> None:
        core, changes = self.core, [group.Tagged(tag.name, None)]
        unmoved = ((tag.name, tag),)
        with suppress(ConflictError):
            if self.forgets_tags:
                core.submit(WriteSet(next(core.numbers), BLIND, (), changes, unmoved=unmoved))


class LiveWithoutOwner:
    """`Live` next to a live owner: the durable part of its log.

    If an owner died, or has not recovered the log yet, MARK may lack durable frames. So the owner
    must be the same before and after each read.

    Args:
        follower: Reads the log up to MARK.
        epoch: The epoch of the live owner that has recovered the log; None if there is none.
    """

    def __init__(self, follower: Follower, epoch: Callable[[], int | None]) -> None:
        self._follower, self._epoch = follower, epoch
        self._first_epoch = epoch()

    def view(self) -> View:
        view = self._follower.state().view
        if self._first_epoch is None or self._epoch() != self._first_epoch:
            raise BusyError("the store has no owner yet, or its owner ended meanwhile; call again")
        return view

    def renew(self) -> object:
        return self._follower.close()  # the next look begins at the newest record

    def forget(self, tag: Tag) -> object:
        """Leave the tag to the owner's vacuum: only a commit removes a tag."""


def attached(view: View) -> Iterator[Pin]:
    """Yield the pins of bulk commits whose rows are in no record yet."""
    for levels in view.levels.values():
        for source in levels.sealed:
            if isinstance(source, HistoryRun):
                yield source.table.pin
