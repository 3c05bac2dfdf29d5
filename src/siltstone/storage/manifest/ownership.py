"""Ownership: the right of one process to append to a store's WAL.

    LOCK   flock'd by the owner as long as it lives; 1,024 bytes: JSON (pid, host, epoch,
           endpoint, whether it will serve, or why it cannot, URL), padded with spaces, for other
           processes; valid only while the flock is held, and even then of an owner that died
           until its next one has written
    MARK   flock'd, too, by an owner that has recovered the log
    WISH   (`jobs/NEXT`) flock'd, shared, by processes that wait for the end of an owner that
           LOCK says is ending; the kernel forgets the wish of a process that died

The flock decides, together with a registry of this process by (device, inode) of the root, which
refuses a second owner here even if flock does not work. The child of a fork owns nothing: its copy
of the descriptor is closed; otherwise the store would stay owned after its owner died.
Lock: `_Registry.mutex`, for the registry alone.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from functools import partial
from pathlib import Path

import msgspec

from siltstone.errors import ClosedError, OwnedError, ReplacedError, UnavailableError
from siltstone.storage.files.files import REMOTE_TYPES, Files, refusals
from siltstone.storage.files.locks import IsThere, LinkCount, Lock, Look, is_taken
from siltstone.storage.wal.segments import MARK_NAME, mark_is_held
from siltstone.units import require

LOCK_BYTES = 1024
WISH = Path("jobs/NEXT")
_LOOKING_MAX = 1_000
_WHY_BYTES_MAX = 320  # as JSON up to twice as many, which LOCK has room for without a server


class Holder(msgspec.Struct, frozen=True):
    """The owner according to LOCK; `pid` is None if there is none."""

    pid: int | None = None
    host: str | None = None
    epoch: int | None = None
    endpoint: str | None = None
    serves: bool = False
    """Whether it serves or will serve."""
    url: str | None = None
    """Where its server answers other machines."""
    ends: bool = False
    """Whether it does its last work, and releases the store as soon as another process asks."""
    cannot_serve: str | None = None
    """Why no process can join it, if it tried to serve."""


class Ownership:
    """The right to append to the WAL of one store, until `release` or the end of the process."""

    def __init__(
        self, files: Files, root: Path, lock: Lock, *, will_serve: bool = False, ends: bool = False
    ) -> None:
        self.root = root
        self._files, self._lock, self._will_serve = files, lock, will_serve
        self._ends, self._epoch = ends, 0
        self._cannot_serve: str | None = None
        self._identity = files.identity(root)
        self._recovered: Lock | None = None
        # A file system that says of a new file that no path names it counts none.
        self.look: Look = lock.look if lock.look().st_nlink else partial(LinkCount, 1)
        """Counts the paths that name LOCK: none once it was deleted, or another one was seen.

        Asked by each commit: with one, no other process owns the store. Any thread.
        """
        self.is_at_its_path: IsThere = lock.at(root / "LOCK")
        """Says whether the path of the store leads to our LOCK; asked by each commit, too."""

    @property
    def is_held(self) -> bool:
        return self._lock.fd >= 0

    def is_in_place(self) -> bool:
        """Whether the directory is still the owned one: not deleted, not replaced."""
        is_ours = self._lock.names(self.root / "LOCK") and self._files.are_in_place()
        if not is_ours and self.is_held:
            self.look, self.is_at_its_path = partial(LinkCount, 0), _is_gone  # for good
        return is_ours

    def require_held(self) -> None:
        """Check that this process still holds the lock.

        Raises:
            ClosedError: The lock was released, or this is a forked child.
        """
        if not self.is_held:
            raise ClosedError(f"{self.root} is not owned by this process (closed, or forked)")

    def require_in_place(self) -> None:
        """Check that this process still owns the directory, before it touches files by name.

        Another store there has segments and records with the same names.

        Raises:
            ClosedError: As `require_held`.
            ReplacedError: The directory was deleted, moved or replaced; nothing was done.
        """
        self.require_held()
        if not self.is_in_place():
            raise self.lost()

    def lost(self) -> ReplacedError:
        """Return the error of an owner whose directory or LOCK was moved, deleted or replaced."""
        return ReplacedError(self.root)

    def announce(self, *, epoch: int, endpoint: str | None = None, url: str | None = None) -> None:
        """Write the owner, and the endpoint and the URL to join, into LOCK.

        Raises:
            ReplacedError: As `require_in_place`.
            UnavailableError: The file system refuses (the store is still owned).
        """
        self.require_in_place()
        self._epoch = epoch
        with refusals(f"cannot write the owner into LOCK of {self.root}"):
            serves = self._will_serve or endpoint is not None or url is not None
            about = (os.getpid(), platform.node(), epoch, endpoint, serves, url, self._ends)
            self._write(Holder(*about, None if serves else self._cannot_serve))

    def recovered(self) -> None:
        """Let others see that the log is recovered, until `release`: see `recovered_epoch`.

        Each reader holds the lock for a moment to try it. If one stops while it does, this owner
        does not get the lock. Then readers check by themselves how far the log is durable, and no
        other process can vacuum next to this owner. So call this again now and then.
        """
        if self._recovered is not None:
            return
        with contextlib.suppress(OSError):
            for _ in range(_LOOKING_MAX):
                self._recovered = self._files.lock(self.root / "wal" / MARK_NAME)
                if self._recovered is not None:
                    return

    def end(self) -> None:
        """Say in LOCK that the owner ends: a process that wants to own the store may wait for that.

        Raises:
            UnavailableError: The file system refuses, or the directory was replaced.
        """
        self.require_in_place()
        self._ends = True
        with refusals(f"cannot write into LOCK of {self.root}"):
            with contextlib.suppress(FileExistsError):
                self._files.make_level(self.root / WISH.parent)
            is_taken(self._files.lock(self.root / WISH, create=True))  # it is there from now on
        self.announce(epoch=self._epoch)

    def is_wished(self) -> bool:
        """Return whether another process waits for the end of this owner (see `Wish`)."""
        try:
            return is_taken(self._files.lock(self.root / WISH))
        except OSError:
            return False

    def will_not_serve(self, why: str = "") -> None:
        """Withdraw the announcement that it will serve, with the next `announce`.

        Args:
            why: What keeps it from serving, in any length, if it was asked to.
        """
        self._will_serve = False
        shown = "".join(each if each.isprintable() else "?" for each in why)
        self._cannot_serve = shown.encode()[:_WHY_BYTES_MAX].decode(errors="ignore") or None

    def release(self) -> None:
        """Release the ownership. Further calls do nothing."""
        if self.is_held:
            try:
                with contextlib.suppress(OSError):  # LOCK is a hint; the flock is what counts
                    if self.is_in_place():
                        self._write(Holder())
            finally:
                if self._recovered is not None:
                    self._recovered.release()
                self._lock.release()
                _registry.remove(self._identity)

    def _write(self, holder: Holder) -> None:
        data = msgspec.json.encode(holder).ljust(LOCK_BYTES - 1) + b"\n"
        require(len(data) == LOCK_BYTES, "LOCK is too long")
        with contextlib.closing(self._files.open(self.root / "LOCK")) as file:
            file.pwrite(data, 0)  # in place: a new file would not be the locked one


def _is_gone() -> bool:
    return False


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


def own(
    files: Files, root: Path, *, force: bool = False, will_serve: bool = False, ends: bool = False
) -> Ownership:
    """Take the ownership of the store at `root`, an existing directory, without waiting.

    Args:
        files: The file system.
        root: The store's directory.
        force: Trust flock also on a network file system.
        will_serve: Announce that this owner will serve.
        ends: Announce that this owner only maintains the store, and ends if another one waits.

    Raises:
        OwnedError: Another process owns the store, or this process does already.
        UnavailableError: The file system's locks are unreliable, or it refuses.
    """
    kind = files.filesystem(root)
    if kind.startswith(REMOTE_TYPES) and not force:
        raise UnavailableError(
            f"{root} is on {kind}, where locks are unreliable: open it with read_only=True"
            " or keep the store on a local disk"
        )
    with refusals(f"cannot own {root}"):
        return _own(files, root, will_serve=will_serve, ends=ends)


def _own(files: Files, root: Path, *, will_serve: bool, ends: bool) -> Ownership:
    identity = files.identity(root)
    if not _registry.add(identity):
        raise _owned(files, root)
    with contextlib.ExitStack() as if_it_fails:
        if_it_fails.callback(_registry.remove, identity)
        lock = files.lock(root / "LOCK", create=True)
        if lock is None:
            raise _owned(files, root)
        if_it_fails.callback(lock.release)
        ownership = Ownership(files, root, lock, will_serve=will_serve, ends=ends)
        ownership.announce(epoch=0)
        if_it_fails.pop_all()
        return ownership


def _owned(files: Files, root: Path) -> OwnedError:
    holder = read_holder(files, root)
    return OwnedError(
        root, holder.pid, holder.host, holder.endpoint, cannot_serve=holder.cannot_serve
    )


def recovered_epoch(files: Files, root: Path) -> int | None:
    """Return the epoch of a live owner that has recovered the log; None if there is none.

    Before recovery MARK, which is never synced, may be far behind the acknowledged commits. That
    LOCK is locked proves less: its words may be of an owner that died.
    """
    epoch = read_holder(files, root).epoch
    return epoch or None if mark_is_held(files, root / "wal") else None


def read_holder(files: Files, root: Path) -> Holder:
    """Return the contents of LOCK; a hint: its owner may have died."""
    try:
        return msgspec.json.decode(files.read(root / "LOCK"), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return Holder()


class Wish:
    """The wish of this process to own a store whose owner ends; said until `withdraw`."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files, self._path = files, root / WISH
        self._said: Lock | None = None

    def say(self) -> None:
        """Say it, unless it is said. The owner looks itself now and then: then it is said later."""
        if self._said is None:
            with contextlib.suppress(OSError):  # an owner that never ended so has no such file
                self._said = self._files.lock(self._path, shared=True)

    def withdraw(self) -> None:
        """End the wish. Further calls do nothing."""
        if self._said is not None:
            self._said.release()
            self._said = None
