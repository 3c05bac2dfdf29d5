"""Hand-over: how a plain table goes on with the files that an optimize made of its small ones.

    in the owner      a transaction: a frame moves the table to the version with the new files
    beside an owner   the job's record is left, finished: the owner takes it over when it looks
                      for news, or is asked to flush or to optimize
    without an owner  the store is owned for a moment, to do the same

The versions of a plain table are numbered by frames alone (other Lance clients build on the
numbers), so nobody but the owner may make one. What was compacted is put on the version of that
moment; where an input is not there any more, it is dropped, and whoever optimizes next plans anew.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from siltstone.engine.commit.core import Core
from siltstone.engine.recover.following import Follower
from siltstone.engine.write.transaction import EngineTransaction
from siltstone.errors import ConflictError
from siltstone.formats.manifest import Catalog
from siltstone.storage.tables.tables import Compacted, InputsMovedError

WAIT_S = 5.0
_LOOK_S = 0.05


class PlainTables(Protocol):
    """The plain tables of a store, as a process that optimizes reaches them."""

    @property
    def is_ours(self) -> bool:
        """Whether `advance` works here; else what is finished is handed over."""
        ...

    def catalog(self) -> AbstractContextManager[Catalog]:
        """Return what is committed; all that it names stays while the context is open."""
        ...

    def advance(self, incarnation: int, compacted: Sequence[Compacted], began_us: int) -> bool:
        """Let a table go on with `compacted`, whose first file was begun at `began_us`.

        False: not all inputs are there any more; nothing was done.

        Raises:
            BusyError: Vacuum took the files for garbage meanwhile.
        """
        ...

    def commit_version(self, is_left: Callable[[], bool]) -> bool:
        """Have the owner take over what finished jobs left; False: some `is_left` after a while."""
        ...


@dataclass(frozen=True, slots=True)
class OwnPlainTables:
    """Those of a store that this process owns."""

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


@dataclass(frozen=True, slots=True)
class PlainTablesOfAnOwner:
    """Those of a store that another process owns, or nobody.

    `follow` gives a reader of its log; `own_and_take` owns the store for a moment and takes over
    what is left, False if another process owns it. That one is waited for, `wait_s` at most.
    """

    follow: Callable[[], Follower]
    own_and_take: Callable[[], bool]
    wait_s: float = WAIT_S
    is_ours: bool = False

    @contextlib.contextmanager
    def catalog(self) -> Generator[Catalog]:
        """See `PlainTables.catalog`."""
        follower = self.follow()
        try:
            yield follower.state().view.catalog
        finally:
            follower.close()

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
