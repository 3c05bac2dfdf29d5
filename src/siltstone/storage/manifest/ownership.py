"""Ownership: which process may append to a store's WAL.

    LOCK   flock'd by the owner as long as it lives; 1,024 bytes: JSON (pid, host, epoch,
           endpoint, whether it will serve), filled with spaces, for others to read; true only
           while the flock is held

flock decides, and a registry of this process, by (device, inode) of the root, so that a second
handle here is refused even where flock is not to be trusted. The child of a fork owns nothing:
its copy of the descriptor is closed, else the store would stay owned after its owner died.
Lock: `_Registry.mutex`, for the registry alone.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from pathlib import Path

import msgspec

from siltstone.errors import ClosedError, OwnedError, UnavailableError
from siltstone.storage.files.files import Files, Lock
from siltstone.units import require

LOCK_BYTES = 1024
_REMOTE_TYPES = ("nfs", "cifs", "smb", "fuse", "9p", "afs", "ceph", "glusterfs", "lustre")


class Holder(msgspec.Struct, frozen=True):
    """Who says in LOCK that it owns the store; all None when nobody does."""

    pid: int | None = None
    host: str | None = None
    epoch: int | None = None
    endpoint: str | None = None
    serves: bool | None = None
    """Whether it serves or will, if it knows; None: an older siltstone, which does not say."""


class Ownership:
    """The right to append to the WAL of one store, until `release` or the end of the process."""

    def __init__(self, files: Files, root: Path, lock: Lock, *, will_serve: bool = False) -> None:
        self.root = root
        self._files, self._lock, self._will_serve = files, lock, will_serve
        self._identity = files.identity(root)

    @property
    def is_held(self) -> bool:
        return self._lock.fd >= 0

    def is_in_place(self) -> bool:
        """Whether the directory is still the one that is owned: not deleted, not replaced."""
        return self._lock.names(self.root / "LOCK")

    def require_held(self) -> None:
        """Refuse to go on without the lock.

        Raises:
            ClosedError: It was released, or this is a forked child.
        """
        if not self.is_held:
            raise ClosedError(f"{self.root} is not owned by this process (closed, or forked)")

    def require_in_place(self) -> None:
        """Refuse to touch files by their names in a directory that is not ours any more.

        Another store there has segments and records of the same names.

        Raises:
            ClosedError: As `require_held`.
            UnavailableError: It was deleted, moved or replaced; nothing was done.
        """
        self.require_held()
        if not self.is_in_place():
            raise UnavailableError(
                f"{self.root} was deleted or replaced while this process had the store open; what"
                " is there now was left alone: close this store, and open that one"
            )

    def announce(self, *, epoch: int, endpoint: str | None = None) -> None:
        """Tell others in LOCK who owns the store, and where to join it.

        Raises:
            UnavailableError: The file system refuses; the store is owned all the same. Or its
                directory was replaced.
        """
        self.require_in_place()
        try:
            serves = self._will_serve or endpoint is not None
            self._write(Holder(os.getpid(), platform.node(), epoch, endpoint, serves))
        except OSError as error:
            raise UnavailableError(f"cannot say in LOCK who owns {self.root}: {error}") from error

    def will_not_serve(self) -> None:
        """Take it back that it will serve; the next `announce` says so."""
        self._will_serve = False

    def release(self) -> None:
        """Give the store up; a second time does nothing."""
        if self.is_held:
            try:
                with contextlib.suppress(OSError):  # LOCK is a hint; the flock is what counts
                    if self.is_in_place():
                        self._write(Holder())
            finally:
                self._lock.release()
                _registry.remove(self._identity)

    def _write(self, holder: Holder) -> None:
        data = msgspec.json.encode(holder).ljust(LOCK_BYTES - 1) + b"\n"
        require(len(data) == LOCK_BYTES, "LOCK is too long")
        file = self._files.open(self.root / "LOCK")
        try:
            file.pwrite(data, 0)  # in place: a new file would not be the locked one
        finally:
            file.close()


class _OwnedStores:
    """The stores that this process owns or is about to own."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self._owned: set[tuple[int, int]] = set()

    def add(self, identity: tuple[int, int]) -> bool:
        with self.mutex:
            is_new = identity not in self._owned
            self._owned.add(identity)
            return is_new

    def remove(self, identity: tuple[int, int]) -> None:
        with self.mutex:
            self._owned.discard(identity)


_registry = _OwnedStores()


# The child owns nothing; and another thread of the parent may have held the mutex.
os.register_at_fork(after_in_child=_registry.__init__)


def own(files: Files, root: Path, *, force: bool = False, will_serve: bool = False) -> Ownership:
    """Take the ownership of the store at `root`, an existing directory, without waiting.

    Args:
        files: The file system.
        root: The store's directory.
        force: Trust flock also on a network file system.
        will_serve: Tell who wants to join that this owner will let them.

    Raises:
        OwnedError: A process owns it, or another handle of this one.
        UnavailableError: The file system's locks are not to be trusted, or it refuses.
    """
    kind = files.filesystem(root)
    if kind.startswith(_REMOTE_TYPES) and not force:
        raise UnavailableError(
            f"{root} is on {kind}, where locks are not to be trusted: open it with read_only=True"
            " or keep the store on a local disk"
        )
    try:
        return _own(files, root, will_serve=will_serve)
    except OSError as error:
        raise UnavailableError(f"cannot own {root}: {error}") from error


def _own(files: Files, root: Path, *, will_serve: bool) -> Ownership:
    identity = files.identity(root)
    if not _registry.add(identity):
        raise _owned(files, root)
    lock = None
    try:
        lock = files.lock(root / "LOCK", create=True)
        if lock is not None:
            ownership = Ownership(files, root, lock, will_serve=will_serve)
            ownership.announce(epoch=0)
            return ownership
    except BaseException:
        if lock is not None:
            lock.release()
        _registry.remove(identity)
        raise
    _registry.remove(identity)
    raise _owned(files, root)


def _owned(files: Files, root: Path) -> OwnedError:
    holder = read_holder(files, root)
    return OwnedError(root, holder.pid, holder.host, holder.endpoint)


def recovered_epoch(files: Files, root: Path) -> int | None:
    """Return the epoch of the owner that is alive and has recovered the log; None: nobody has.

    Until then MARK, which is never synced, may be far behind what was acknowledged.
    """
    epoch = read_holder(files, root).epoch
    try:
        lock = files.lock(root / "LOCK", shared=True)
    except FileNotFoundError:
        return None
    if lock is None:
        return epoch or None
    lock.release()
    return None


def read_holder(files: Files, root: Path) -> Holder:
    """Return what LOCK says; a hint, it may be of an owner that died."""
    try:
        return msgspec.json.decode(files.read(root / "LOCK"), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return Holder()
