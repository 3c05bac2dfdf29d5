"""Locks: a flock on a file, and what a fork leaves of it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias


class Links(Protocol):
    """As much of what a file system tells of a file as says whether it was deleted."""

    @property
    def st_nlink(self) -> int:
        """How many paths name the file."""
        ...


@dataclass(frozen=True, slots=True)
class LinkCount:
    """`Links` without a file."""

    st_nlink: int


Look: TypeAlias = Callable[[], Links]


class Lock(Protocol):
    """A held flock. It ends with `release` or with the process; a forked child has no part."""

    @property
    def fd(self) -> int:
        """The descriptor; -1 when the lock is not held (any more)."""
        ...

    def names(self, path: Path) -> bool:
        """Return whether `path` still names the locked file (not unlinked, not replaced)."""
        ...

    @property
    def look(self) -> Look:
        """What counts the paths that still name the locked file; without a call of Python's."""
        ...

    def release(self) -> None:
        """Release the lock. Further calls do nothing."""
        ...


class RealLock:
    """An open descriptor with a flock on it; the lock dies with the last copy of the descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        _held.add(self)

    @property
    def fd(self) -> int:
        return self._fd

    def names(self, path: Path) -> bool:
        fd = self._fd
        if fd < 0:
            return False
        try:
            ours, theirs = os.fstat(fd), path.stat()
        except FileNotFoundError:
            return False
        except OSError:
            if self._fd == fd:
                raise
            return False  # another thread released it meanwhile
        return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)

    @property
    def look(self) -> Look:
        return partial(os.fstat, self._fd)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_held: weakref.WeakSet[RealLock] = weakref.WeakSet()


def _forget_locks_in_child() -> None:
    """Close the child's copies: they would keep the lock after its holder died [measured].

    Never LOCK_UN here: that would take the lock from the parent.
    """
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_forget_locks_in_child)
