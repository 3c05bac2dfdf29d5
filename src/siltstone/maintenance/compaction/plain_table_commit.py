"""Hand-over: commits the new files of an optimize to a plain table.

    in the owner      a transaction: a frame moves the table to the version with the new files
    next to an owner  the job's record is left, finished: the owner picks it up when it refreshes,
                      flushes or optimizes
    without an owner  this process owns the store for a moment, to do the same

Only frames number the versions of a plain table (other Lance clients build on the numbers), so only
the owner may create one. The compacted files are put on the newest version; if an input no longer
exists, they are dropped, and the next optimize plans again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from siltstone.engine.commit.core import Core
from siltstone.engine.recover.following import Follower
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import ConflictError
from siltstone.formats.manifest import Catalog
from siltstone.maintenance.index.plain_indexes import PlainIndexes, Renewed
from siltstone.storage.tables.values import Compacted, InputsMovedError

WAIT_S = 5.0
_LOOK_S = 0.05


class PlainTables(Protocol):
    """The plain tables of a store, for a process that optimizes."""

    @property
    def is_ours(self) -> bool:
        """Whether `advance` works here; otherwise the owner must commit the finished work."""
        ...

    def catalog(self) -> AbstractContextManager[Catalog]:
        """Return the committed catalog; its files stay while the context is open."""
        ...

    def advance(self, incarnation: int, compacted: Sequence[Compacted], began_us: int) -> bool:
        """Move a table to `compacted`, whose first file was begun at `began_us`.

        False: an input no longer exists; nothing was done.

        Raises:
            BusyError: A vacuum's gc horizon is newer than the files.
        """
        ...

    def commit_version(self, is_left: Callable[[], bool]) -> bool:
        """Ask the owner to commit the work of finished jobs; False: some is left after a while."""
        ...

    def renew_indexes(self, table: int | None) -> Sequence[Renewed]:
        """Build late indexes of one table, or of all, again; those of another owner stay late."""
        ...


class OwnPlainTables(msgspec.Struct, frozen=True):
    """The plain tables of a store that this process owns."""

    core: Core
    is_ours: bool = True

    @contextlib.contextmanager
    def catalog(self) -> Generator[Catalog]:
        """See `PlainTables.catalog`."""
        view = self.core.state().view  # holds a lease
        yield view.catalog

    def advance(self, incarnation: int, compacted: Sequence[Compacted], began_us: int) -> bool:
        """See `PlainTables.advance`."""
        try:
            with EngineTransaction(self.core) as tx:
                tx.compact(incarnation, compacted, began_us)
        except (InputsMovedError, ConflictError):
            return False
        return True

    def commit_version(self, is_left: Callable[[], bool]) -> bool:
        """See `PlainTables.commit_version`; here it was taken before."""
        return not is_left()

    def renew_indexes(self, table: int | None) -> Sequence[Renewed]:
        """See `PlainTables.renew_indexes`."""
        return PlainIndexes(self.core).renew(table)


class PlainTablesOfAnOwner(msgspec.Struct, frozen=True):
    """The plain tables of a store that this process does not own.

    `follow` returns a reader of its log. `own_and_take` owns the store for a moment and commits the
    finished work; False if another process owns it. Then the call waits, `wait_s` at most.
    """

    follow: Callable[[], Follower]
    own_and_take: Callable[[], bool]
    wait_s: float = WAIT_S
    is_ours: bool = False

    @contextlib.contextmanager
    def catalog(self) -> Generator[Catalog]:
        """See `PlainTables.catalog`."""
        with contextlib.closing(self.follow()) as follower:
            yield follower.state().view.catalog

    def advance(self, incarnation: int, compacted: Sequence[Compacted], began_us: int) -> bool:
        """See `PlainTables.advance`; only the owner can."""
        raise AssertionError(incarnation, len(compacted), began_us)

    def commit_version(self, is_left: Callable[[], bool]) -> bool:
        """See `PlainTables.commit_version`."""
        deadline = time.monotonic() + self.wait_s
        while is_left() and not self.own_and_take():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        return not is_left()

    def renew_indexes(self, table: int | None) -> Sequence[Renewed]:  # noqa: ARG002 - the owner's
        """See `PlainTables.renew_indexes`."""
        return ()
