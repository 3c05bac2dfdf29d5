"""SimFiles: the `Files` of one simulated machine, which fails, tears and crashes on order.

    RUNNING ──crash──▶ CRASHED      every further call raises `SimulatedCrash`;
                                    `images` (power cut) and `killed` (SIGKILL) give the machines
                                    that start after it

Whoever shares one `SimFiles` is a process on the same machine: a lock that one holds the other does
not get. The steps that `Files` is made of are counted, and a `Fault` hits one of them by number, so
a test can fail each step of whatever it runs: first without faults, to learn `operations`.

Part of the package, not of the tests, because every suite and tool that crashes things uses it.
Over 400 lines: `Files` alone has 25 methods. Lock: `_mutex`, held for one step.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import errno
import functools
import itertools
import os
import random
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from siltstone.storage.files.files import (
    TEMPORARY_SUFFIX,
    Buffer,
    File,
    Lock,
    create_by_link,
    fill_with_zeros,
    make_directories,
    replace_by_rename,
    write_new,
)
from siltstone.storage.files.locks import IsThere, LinkCount, Look
from tests.support.simulated_disk import Disk, Node, Tree, Write, handle_of

_machines = itertools.count(1)
_T = TypeVar("_T")


class SimulatedCrash(BaseException):
    """The machine stopped at this step. No `except Exception` may stop it."""


class Kind(enum.Enum):
    """What a fault does to the step it hits."""

    CRASH = "crash"
    EIO = "eio"
    ENOSPC = "enospc"
    SHORT = "short"  # a write writes half and says so; other steps are spared


class When(enum.Enum):
    """Where in the step: nothing of it done, a write half done, or all done but not told.

    An EIO before a sync loses the unsynced writes; one after it made them durable all the same.
    """

    BEFORE = "before"
    MIDDLE = "middle"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at step `at` (counted from 1), or from there on when `is_sticky`."""

    at: int
    kind: Kind = Kind.CRASH
    when: When = When.BEFORE
    is_sticky: bool = False

    def hits(self, operation: int) -> bool:
        return operation == self.at or (self.is_sticky and operation > self.at)


@dataclass(frozen=True, slots=True)
class Operation:
    """One counted step: `what` names it."""

    what: str
    path: Path


@dataclass(frozen=True, slots=True)
class Image:
    """What a power cut may leave, on a machine that has just started; `label` says what it kept."""

    label: str
    files: SimFiles


class _Machine:
    """What the handles of one `SimFiles` share: its disk, its faults and who locks what."""

    def __init__(self, disk: Disk, faults: Sequence[Fault], now: Callable[[], float]) -> None:
        self.disk, self.faults, self.now = disk, tuple(faults), now
        self.trace: list[Operation] = []
        self.is_crashed = False
        self.syncs_writes = True
        self.locks: dict[int, list[_SimLock]] = {}
        self.temporaries = 0
        self.mutex = threading.RLock()

    def refuse_crashed(self) -> None:
        if self.is_crashed:
            raise SimulatedCrash("the machine is down")

    def crash(self) -> None:
        self.is_crashed = True
        self.locks.clear()

    def begin(self, what: str, path: Path) -> Fault | None:
        """Count a step; return the fault that must hit in or after it, if any.

        Raises:
            SimulatedCrash, OSError: A fault hits before it.
        """
        self.refuse_crashed()
        self.trace.append(Operation(what, path))
        fault = next((f for f in self.faults if f.hits(len(self.trace))), None)
        if fault is None or fault.kind is Kind.SHORT:
            return fault if what == "pwrite" else None
        if fault.when is When.BEFORE or (fault.when is When.MIDDLE and what != "pwrite"):
            self._raise(fault)
        return fault

    def end(self, fault: Fault | None) -> None:
        if fault is not None and fault.kind is not Kind.SHORT:
            self._raise(fault)

    @contextlib.contextmanager
    def step(self, what: str, path: Path) -> Generator[None]:
        """Be one step, with its fault before or after it (also when the step itself fails)."""
        with self.mutex:
            late = self.begin(what, path)
            try:
                yield
            finally:
                self.end(late)

    def _raise(self, fault: Fault) -> None:
        last = self.trace[-1]
        if fault.kind is Kind.CRASH:
            self.crash()
            raise SimulatedCrash(f"step {len(self.trace)}: {last.what} {last.path}")
        number = errno.EIO if fault.kind is Kind.EIO else errno.ENOSPC
        raise OSError(number, os.strerror(number), str(last.path))

    def write_part(self, inode: int, data: bytes, offset: int, path: Path) -> int:
        """Be one pwrite(2): write `data` or less, return how much."""
        with self.mutex:
            fault = self.begin("pwrite", path)
            is_part = fault and (fault.kind is Kind.SHORT or fault.when is When.MIDDLE)
            part = data[: max(1, len(data) // 2)] if is_part else data
            self.disk.touch(inode, self.now())
            self.disk.apply(Write(inode, offset, part))
            self.end(fault)
            return len(part)

    def sync(self, inode: int, path: Path, within: range | None = None) -> None:
        with self.mutex:
            try:
                late = self.begin("sync", path)
            except OSError:
                self.disk.fail_sync(inode)
                raise
            self.disk.sync(inode, within=within)
            self.end(late)


class SimFiles:
    """`Files` in memory; see the module. Any thread may use it.

    `faults` may be set at any time. `filesystem_type` is what `filesystem` answers; `now` gives
    modification times.
    """

    def __init__(
        self,
        faults: Sequence[Fault] = (),
        *,
        now: Callable[[], float] = lambda: 0.0,
        disk: Disk | None = None,
    ) -> None:
        self._machine = _Machine(disk or Disk(), faults, now)
        self._disk, self._mutex = self._machine.disk, self._machine.mutex
        self._device = next(_machines)
        self._at: tuple[Path, int, int | None] | None = None
        self.filesystem_type = "simulated"

    # --- what tests ask of the machine

    @property
    def faults(self) -> tuple[Fault, ...]:
        return self._machine.faults

    @faults.setter
    def faults(self, faults: Sequence[Fault]) -> None:
        self._machine.faults = tuple(faults)

    @property
    def trace(self) -> list[Operation]:
        return self._machine.trace

    @property
    def syncs_writes(self) -> bool:
        """Whether a write can be synced by the same call."""
        return self._machine.syncs_writes

    @syncs_writes.setter
    def syncs_writes(self, can: bool) -> None:
        self._machine.syncs_writes = can

    @property
    def operations(self) -> int:
        """How many steps were counted."""
        return len(self._machine.trace)

    @property
    def is_crashed(self) -> bool:
        return self._machine.is_crashed

    def crash(self) -> None:
        """Stop the machine now: it answers nothing more, its locks are free."""
        self._machine.crash()

    def killed(self) -> SimFiles:
        """Return the machine as after a SIGKILL of all its processes: nothing lost, no lock held.

        What was not synced is still not synced: a power cut after it may lose it.
        """
        return self._started(self._disk.killed())

    def images(self, rng: random.Random, limit: int | None = None) -> Iterator[Image]:
        """Yield the different disks that a power cut now may leave, the first `limit` of them."""
        for label, disk in itertools.islice(self._disk.images(rng), limit):
            yield Image(label, self._started(disk))

    def tree(self) -> Tree:
        """Return every path with its content (None: a directory), sorted: what processes see."""
        return self._disk.tree()

    def _started(self, disk: Disk) -> SimFiles:
        machine = SimFiles(now=self._machine.now, disk=disk)
        machine.filesystem_type = self.filesystem_type
        machine._machine.temporaries = self._machine.temporaries
        return machine

    # --- the methods of `Files`

    def below(self, root: Path) -> Self:
        if self._at is not None and self._at[0] == root:
            return self
        bound = copy.copy(self)
        with self._mutex:
            bound._at = (root, self._disk.inode(root), self._disk.find(root / "manifest"))
        return bound

    def are_in_place(self) -> bool:
        at = self._at
        if at is None:
            return True
        root, inode, manifest = at
        with self._mutex:
            self._machine.refuse_crashed()
            there = self._disk.find(root), self._disk.find(root / "manifest")
            return there == (inode, manifest or there[1])

    def let_go(self) -> None:
        self._at = None

    def _of(self, path: Path) -> Path:
        """Return a path from the handle on that it goes by."""
        return path if self._at is None else _from_handle(path, *self._at)

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        return _SimFile(self._machine, self._opened(path, create, new), path, can_write=write)

    def read(self, path: Path) -> bytes:
        return self._do(
            "read", path, lambda: self._disk.node(self._disk.file(self._of(path))).cached
        )

    def write(self, path: Path, data: Buffer) -> None:
        write_new(self, path, data)

    def create_if_absent(self, path: Path, data: Buffer) -> bool:
        return create_by_link(self, path, data)

    def replace(self, path: Path, data: Buffer, *, durable: bool = True) -> None:
        replace_by_rename(self, path, data, durable=durable)

    def mkdir(self, path: Path) -> None:
        make_directories(self, path)

    def preallocate(self, path: Path, size: int) -> None:
        fill_with_zeros(self, path, size)

    def rename(self, old: Path, new: Path) -> None:
        self._do("rename", new, lambda: self._disk.rename(self._of(old), self._of(new)))

    def unlink(self, path: Path) -> None:
        def remove() -> None:
            self._disk.file(self._of(path))
            self._disk.remove(self._of(path))

        self._do("unlink", path, remove)

    def rmdir(self, path: Path) -> None:
        def remove() -> None:
            if self._disk.names(self._of(path)):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
            self._disk.remove_directory(self._of(path))

        self._do("rmdir", path, remove)

    def link(self, old: Path, new: Path) -> None:
        self._do("link", new, lambda: self._disk.link(self._of(old), self._of(new)))

    def clone(self, old: Path, new: Path) -> bool:
        return False

    def make_level(self, path: Path) -> None:
        self._do("mkdir", path, lambda: self._disk.make(self._of(path), Node(names={})))

    def restrict(self, path: Path, mode: int) -> None:
        """Do nothing: there are no other users."""

    def sync_dir(self, path: Path) -> None:
        self._do("sync_dir", path, lambda: self._disk.sync(self._disk.directory(self._of(path))))

    def sync_file(self, path: Path) -> None:
        self._machine.sync(self._disk.file(self._of(path)), path)

    def list(self, path: Path) -> list[str]:
        return self._do("list", path, lambda: sorted(self._disk.names(self._of(path))))

    def exists(self, path: Path) -> bool:
        return self._look(lambda: self._disk.find(self._of(path))) is not None

    def is_dir(self, path: Path) -> bool:
        inode = self._look(lambda: self._disk.find(self._of(path)))
        return inode is not None and self._disk.node(inode).names is not None

    def size(self, path: Path) -> int:
        return self._look(lambda: len(self._disk.node(self._disk.file(self._of(path))).cached))

    def mtime(self, path: Path) -> float:
        return self._look(lambda: self._disk.node(self._disk.inode(self._of(path))).mtime)

    def identity(self, path: Path) -> tuple[int, int]:
        return self._device, self._look(lambda: self._disk.inode(self._of(path)))

    def lock(self, path: Path, *, shared: bool = False, create: bool = False) -> Lock | None:
        with self._mutex:
            inode = self._opened(path, create, new=False)
            holders = self._machine.locks.setdefault(inode, [])
            if any(not (shared and holder.is_shared) for holder in holders):
                return None
            lock = _SimLock(self._machine, inode, is_shared=shared)
            holders.append(lock)
            return lock

    def temporary(self, path: Path) -> Path:
        with self._mutex:
            self._machine.temporaries += 1
            number = self._machine.temporaries
            return path.with_name(f".{path.name}.{number}{TEMPORARY_SUFFIX}")

    def filesystem(self, path: Path) -> str:
        return self.filesystem_type

    def _do(self, what: str, path: Path, do: Callable[[], _T]) -> _T:
        with self._machine.step(what, path):
            return do()

    def _look(self, look: Callable[[], _T]) -> _T:
        with self._mutex:
            self._machine.refuse_crashed()
            return look()

    def _opened(self, path: Path, create: bool, new: bool) -> int:
        with self._machine.step("open", path):
            if new or (create and self._disk.find(self._of(path)) is None):
                self._disk.make(self._of(path), Node(mtime=self._machine.now()))
            return self._disk.file(self._of(path))


@functools.lru_cache(maxsize=10_000)
def _from_handle(path: Path, root: Path, inode: int, manifest: int | None) -> Path:
    if not path.is_relative_to(root):
        return path
    below = path.relative_to(root)
    if manifest is not None and below.parts[:1] == ("manifest",):
        return handle_of(manifest).joinpath(*below.parts[1:])
    return handle_of(inode) / below


class _SimFile:
    def __init__(self, machine: _Machine, inode: int, path: Path, *, can_write: bool) -> None:
        self._machine, self._inode, self._path = machine, inode, path
        self._can_write, self._is_open = can_write, True

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._refuse_closed(to_write=True)
        rest = bytes(data)
        while True:
            count = self._machine.write_part(self._inode, rest, offset, self._path)
            rest, offset = rest[count:], offset + count
            if not rest:
                return

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self.pwrite(b"".join(buffers), offset)

    def pwritev_synced(self, buffers: Sequence[Buffer], offset: int) -> bool:
        """Write and sync its own bytes alone; a fault may come between the two."""
        self._refuse_closed(to_write=True)
        if not self._machine.syncs_writes:
            return False
        data = b"".join(buffers)
        self.pwrite(data, offset)
        self._machine.sync(self._inode, self._path, range(offset, offset + len(data)))
        return True

    def pread(self, size: int, offset: int) -> bytes:
        self._refuse_closed()
        with self._machine.step("pread", self._path):
            return self._machine.disk.node(self._inode).cached[offset : offset + size]

    def pread_stored(self, size: int, offset: int) -> bytes:
        """Read what is durable, or would be after a sync that does not fail."""
        self._refuse_closed()
        with self._machine.step("pread", self._path):
            return self._machine.disk.stored(self._inode)[offset : offset + size]

    def sync(self) -> None:
        self._refuse_closed()
        self._machine.sync(self._inode, self._path)

    def size(self) -> int:
        self._refuse_closed()
        with self._machine.mutex:
            return len(self._machine.disk.node(self._inode).cached)

    def close(self) -> None:
        self._is_open = False

    def _refuse_closed(self, *, to_write: bool = False) -> None:
        self._machine.refuse_crashed()
        if not self._is_open or (to_write and not self._can_write):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))


class _SimLock:
    def __init__(self, machine: _Machine, inode: int, *, is_shared: bool) -> None:
        self._machine, self._inode, self.is_shared = machine, inode, is_shared

    @property
    def fd(self) -> int:
        return 0 if self._is_held() else -1

    def names(self, path: Path) -> bool:
        with self._machine.mutex:
            return self._is_held() and self._machine.disk.find(path) == self._inode

    @property
    def look(self) -> Look:
        return lambda: LinkCount(self._links())

    def at(self, path: Path) -> IsThere:
        return lambda: self.names(path)

    def _links(self) -> int:
        with self._machine.mutex:
            return int(self._is_held() and self._machine.disk.is_named(self._inode))

    def release(self) -> None:
        with self._machine.mutex:
            if self._is_held():
                self._machine.locks[self._inode].remove(self)

    def _is_held(self) -> bool:
        return self in self._machine.locks.get(self._inode, [])
