"""Locks: a flock on a file, and what a fork leaves of it."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Protocol


class Lock(Protocol):
    """A held flock. It ends with `release` or with the process; a forked child has no part."""

    @property
    def fd(self) -> int:
        """The descriptor; -1 when the lock is not held (any more)."""
        ...

    def names(self, path: Path) -> bool:
        """Return whether `path` still names the locked file (not unlinked, not replaced)."""
        ...

    def is_named(self) -> bool:
        """Return whether any path still names the locked file; one call of the system."""
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

    def is_named(self) -> bool:
        try:
            return os.fstat(self._fd).st_nlink > 0
        except OSError:  # released; or a server of files knows it no more
            return False

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
