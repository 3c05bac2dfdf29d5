"""Locks: a flock on a file, and what a fork leaves of it.

Each commit asks whether a path still names a locked file (`Lock.at`). To walk the path each time
would take a microsecond or two more than a commit can spare. So the directory of the file is asked
by a handle when it last changed (ctime), and the path only after a change: if the directory is
renamed or deleted, or a name in it is, the file system gives it a new time. That one above it was
renamed it does not say.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

FILE_TICK_NS = 50_000_000
"""How far the times of files are behind the clock: the kernel takes them from its last tick."""


class Links(Protocol):
    """As much of what a file system tells of a file as says whether it was deleted."""

    @property
    def st_nlink(self) -> int:
        """How many paths name the file."""
        ...


class LinkCount(msgspec.Struct, frozen=True):
    """`Links` without a file."""

    st_nlink: int


Look: TypeAlias = Callable[[], Links]
IsThere: TypeAlias = Callable[[], bool]


class Hold(Protocol):
    """What keeps a file for somebody, as a flock does. It ends with `release`."""

    @property
    def fd(self) -> int:
        """The descriptor; -1 when the lock is not held (any more)."""
        ...

    def names(self, path: Path) -> bool:
        """Return whether `path` still names the locked file (not unlinked, not replaced)."""
        ...

    def release(self) -> None:
        """Release the lock. Further calls do nothing."""
        ...


class Lock(Hold, Protocol):
    """A held flock. It ends with the process, too; a forked child has no part."""

    @property
    def look(self) -> Look:
        """What counts the paths that still name the locked file; without a call of Python's."""
        ...

    def at(self, path: Path) -> IsThere:
        """Return `names` of one absolute path, but for renames of what is above its directory.

        Quick: each commit asks it. False also if it is unsure. It ends with the lock.
        """
        ...


@contextmanager
def releasing(lock: Hold) -> Generator[None]:
    """Release a lock at the end, however that comes."""
    try:
        yield
    finally:
        lock.release()


def is_taken(lock: Lock | None) -> bool:
    """Say whether another process has what was just asked for; if not, release it at once."""
    if lock is not None:
        lock.release()
    return lock is None


class RealLock:
    """An open descriptor with a flock on it; the lock dies with the last copy of the descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._ends: list[weakref.finalize[..., RealLock]] = []
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

    def at(self, path: Path) -> IsThere:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._ends.append(weakref.finalize(self, os.close, folder))
        self._ends[-1].atexit = False
        name, fstat, stat, clock = os.fspath(path), os.fstat, os.stat, time.time_ns
        ours, known = fstat(self._fd), -1

        def is_there() -> bool:
            nonlocal known
            try:
                changed = fstat(folder).st_ctime_ns
                if changed == known:
                    return True
                found = stat(name)
            except OSError:
                return False
            if found.st_ino != ours.st_ino or found.st_dev != ours.st_dev:
                return False
            if clock() - changed > FILE_TICK_NS:  # else a next change may have the same time
                known = changed
            return True

        return is_there

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        for end in self._ends:
            end()


_held: weakref.WeakSet[RealLock] = weakref.WeakSet()


def _forget_locks_in_child() -> None:
    """Close the child's copies: they would keep the lock after its holder died [measured].

    Never LOCK_UN here: that would take the lock from the parent.
    """
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_forget_locks_in_child)
