"""Part cache: rows of bases in files of this user, so that one is read without Lance (ADR 100).

    <scratch>/parts.lock                 held by who writes or evicts, of all stores and processes
    <scratch>/<store id>/parts/<name>    the rows of one part (`formats.parts.part_file`)

    ABSENT ──written as a temporary file, renamed──▶ WHOLE ──deleted, at any time──▶ ABSENT

A file is written once, never changed or cut, and found by the identity of its rows. It is deleted
if others need the space and were used later, if vacuum deletes its part, if the store lacks space,
or by the user: then the rows come from Lance, as those of a file that is damaged. Nothing is
synced: after a loss of power a file may have any bytes, and the checks of its blocks say so.

All files of a user have at most `bytes_max` together, and some of the disk stays free. One
process writes at a time; the others do without meanwhile. Who cannot write there does without, too.

Lock: `_lock` guards the open files and is never held over I/O; `_writing` is held by the thread
that makes a file, and no other one waits for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from siltstone.formats.parts import part_file
from siltstone.formats.parts.flat_rows import UnfitRowsError
from siltstone.formats.parts.part_file import (
    BlockDirectory,
    DirectoryWriter,
    Group,
    PartFoot,
    PartIdentity,
    groups_of,
)
from siltstone.storage.cache.part_file import PartFile, is_private, open_part
from siltstone.telemetry.notices import NoticeLog
from siltstone.units import require

OPEN_MAX, _CLOSED_MAX = 128, 4_096
FREE_SHARE, FREE_MAX = 16, 1 << 30
"""One in so many bytes of the disk stays free, at most `FREE_MAX`."""
DEFAULT_SHARE = 10
"""Without a bound: one in so many bytes of what is free, or the cache's."""
_TEMPORARY = ".tmp"
_PARTS, _LOCK = "parts", "parts.lock"
_WRITE_BYTES = 1 << 20
_log = NoticeLog(__name__)

Scan = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
"""Yields some columns of all rows of a part, in the order of their offsets."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    """The part files of a store, in bytes, and how often they were of use to this process.

    `all_bytes` are those of all stores of the user, of which there may be `bytes_max`. Of each open
    file the places of its blocks are in memory, `open_bytes` together. `hits` counts rows that came
    from a file, `misses` reads that found none.
    """

    files: int = 0
    bytes: int = 0
    all_bytes: int = 0
    bytes_max: int = 0
    open_bytes: int = 0
    hits: int = 0
    misses: int = 0


class _NoRoomError(Exception):
    """The bound of the cache, or the disk, has no room for a file."""


class PartCache:
    """The part files of one store; see the module. Any thread.

    Args:
        scratch: The folder of all stores of the user; it need not be there.
        store_id: Of the store; asked when the first file is.
        bytes_max: Of all files of the user; None: a tenth of what is free there.
        open_bytes_max: Of what open files keep in memory.
        is_eager: Files are made at the first read, also of rows that fit into memory: a seam for
            tests.
    """

    def __init__(
        self,
        scratch: Path,
        store_id: Callable[[], str],
        *,
        bytes_max: int | None,
        open_bytes_max: int,
        is_eager: bool = False,
    ) -> None:
        self.is_eager = is_eager
        self._scratch, self._store_id, self._bytes_max = scratch, store_id, bytes_max
        self._open_bytes_max = open_bytes_max
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._open: dict[str, PartFile] = {}
        self._closed: set[str] = set()
        self.nbytes = 0
        self.hits = self.misses = 0
        """Rows that came from a file, and reads that found none; threads may lose some."""

    @property
    def store_id(self) -> str:
        """The id of the store."""
        return self._store_id()

    @property
    def is_writing(self) -> bool:
        """Whether a thread of this process makes a file now, so that no other one can."""
        return self._writing.locked()

    def was_closed(self, name: str) -> bool:
        """Say whether a file is not open because others are, and should be there."""
        return name in self._closed

    def opened(self, name: str) -> PartFile | None:
        """Return a file that is open, and not lost."""
        found = self._open.get(name)
        if found is not None and found.is_lost:
            self._drop(found)
            return None
        return found

    def open(self, identity: PartIdentity, schema: pa.Schema) -> PartFile | None:
        """Return the file of some rows, if there is one."""
        name = identity.name
        found = self.opened(name)
        if found is not None:
            return found
        self._closed.discard(name)
        found = open_part(self._folder / name, identity, schema)
        return None if found is None else self._keep(name, found)

    def make(self, identity: PartIdentity, schema: pa.Schema, scan: Scan) -> PartFile | None:
        """Write the file of some rows; None: not now, because another one is, or never.

        Raises:
            SiltstoneError: The rows cannot be read.
        """
        with self._only_writer() as is_mine:
            if not is_mine:
                return None
            try:
                return self._made(identity, schema, scan)
            except (_NoRoomError, UnfitRowsError):
                return None
            except OSError as error:
                _log.info("%s: no rows are kept there for now: %s", self._folder, error)
                return None

    def drop_parts(self, paths: Iterable[str]) -> None:
        """Delete the files of the parts whose first data files had these paths."""
        gone = {part_file.prefix_of(path) for path in paths}
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):  # noqa: PTH208 - names, not paths
                if name.partition("-")[0] in gone:
                    self._unlink(self._folder / name)

    def drop_store(self) -> None:
        """Delete all files of the store."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):  # noqa: PTH208 - names, not paths
                self._unlink(self._folder / name)

    def give_way(self, root: Path) -> bool:
        """Delete the files of all stores if they lie on the disk of a store; say if one went."""
        with self._lock:
            self._open, self.nbytes = {}, 0
        try:
            if self._scratch.stat().st_dev != root.stat().st_dev:
                return False
            files = [*_files(self._scratch)]
        except OSError:
            return False
        for file in files:
            self._unlink(file.path)
        return bool(files)

    def use(self) -> CacheUse:
        """Return what there is: it looks at each file of the user."""
        files, bytes_max = list[_File](), self._bytes_max
        with contextlib.suppress(OSError):
            files += _files(self._scratch)
        taken = sum(file.size for file in files)
        if bytes_max is None:
            bytes_max = _bound(self._scratch, taken)
        mine = [file.size for file in files if file.path.parent == self._folder]
        counts = self.nbytes, self.hits, self.misses
        return CacheUse(len(mine), sum(mine), taken, bytes_max, *counts)

    @property
    def _folder(self) -> Path:
        return self._scratch / self._store_id() / _PARTS

    def _keep(self, name: str, file: PartFile) -> PartFile | None:
        """Keep a file open; others are closed if there are too many."""
        if file.nbytes > self._open_bytes_max:
            return None
        with self._lock:
            known = self._open.setdefault(name, file)
            if known is not file:
                return known
            self.nbytes += file.nbytes
            while self.nbytes > self._open_bytes_max or len(self._open) > OPEN_MAX:
                oldest = next(iter(self._open))
                self.nbytes -= self._open.pop(oldest).nbytes
                if len(self._closed) >= _CLOSED_MAX:
                    self._closed.clear()  # then they are looked for as those that went
                self._closed.add(oldest)
        return file

    def _drop(self, file: PartFile) -> None:
        """Let go of a file that is lost, and delete it: it is made again."""
        with self._lock:
            if self._open.get(file.path.name) is file:
                del self._open[file.path.name]
                self.nbytes -= file.nbytes
        self._unlink(file.path)

    def _unlink(self, path: Path) -> None:
        with self._lock:
            file = self._open.pop(path.name, None)
            self.nbytes -= 0 if file is None else file.nbytes
        with contextlib.suppress(OSError):
            path.unlink()

    @contextlib.contextmanager
    def _only_writer(self) -> Generator[bool]:
        """Hold the right to write, of all threads and processes of the user, if it is free."""
        if not self._writing.acquire(blocking=False):
            yield False
            return
        try:
            with _flocked(self._scratch) as is_mine:
                yield is_mine
        finally:
            self._writing.release()

    def _made(self, identity: PartIdentity, schema: pa.Schema, scan: Scan) -> PartFile | None:
        folder, name = self._folder, identity.name
        for each in (folder.parent, folder):
            each.mkdir(mode=0o700, exist_ok=True)
            if not is_private(each.lstat()):
                return None
        room = _Room(self._scratch, self._bytes_max, self._unlink)
        path = folder / f"{name}{_TEMPORARY}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        writer = _Writer(os.open(path, flags, 0o600), room)
        try:
            writer.write(identity, groups_of(schema), scan)
            path.rename(folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        finally:
            os.close(writer.descriptor)
        return self.open(identity, schema)


class _File(msgspec.Struct, frozen=True):
    path: Path
    size: int
    used_ns: int


def _files(scratch: Path) -> Iterator[_File]:
    """Yield the files of all stores; those of writers that died are deleted by who may write."""
    for store in os.scandir(scratch):
        entries: list[os.DirEntry[str]] = []
        with contextlib.suppress(OSError):
            entries = [*os.scandir(Path(store.path) / _PARTS)]
        for entry in entries:
            with contextlib.suppress(OSError):  # a vacuum may delete one now
                found = entry.stat(follow_symlinks=False)
                if is_private(found):
                    yield _File(Path(entry.path), found.st_size, found.st_mtime_ns)


class _Room:
    """The space that a new file may take; what was used longest ago makes room."""

    def __init__(
        self, scratch: Path, bytes_max: int | None, unlink: Callable[[Path], None]
    ) -> None:
        """Hold the right to write."""
        self._scratch, self._unlink = scratch, unlink
        files = sorted(_files(scratch), key=lambda file: -file.used_ns)
        for file in files:
            if file.path.suffix == _TEMPORARY:  # its writer is dead
                unlink(file.path)
        self._others = [file for file in files if file.path.suffix != _TEMPORARY]
        taken = sum(file.size for file in self._others)
        if bytes_max is None:
            bytes_max = _bound(scratch, taken)
        self._bytes_max, self._left = bytes_max, bytes_max - taken

    def require(self, nbytes: int) -> None:
        """Let others be deleted only for a file that will fit, as far as one can tell.

        Raises:
            _NoRoomError: It will not.
        """
        if nbytes > self._bytes_max:
            raise _NoRoomError

    def take(self, nbytes: int) -> None:
        """Take some bytes.

        Raises:
            _NoRoomError: There is no room, even without all others.
        """
        self._left -= nbytes
        while self._left < 0 and self._others:
            oldest = self._others.pop()
            self._unlink(oldest.path)
            self._left += oldest.size
        free, whole = _free(self._scratch)
        if self._left < 0 or free - nbytes < min(whole // FREE_SHARE, FREE_MAX):
            raise _NoRoomError


def _free(folder: Path) -> tuple[int, int]:
    """Return the free bytes of the disk of a folder, and all."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def _bound(scratch: Path, taken: int) -> int:
    """Return the bound of the bytes of all files where none is given; without a folder 0."""
    with contextlib.suppress(OSError):
        return (_free(scratch)[0] + taken) // DEFAULT_SHARE
    return 0


class _Writer:
    """Writes one file, a block after the other; nobody else has its descriptor."""

    def __init__(self, descriptor: int, room: _Room) -> None:
        self.descriptor, self._room = descriptor, room
        self._held: list[bytes] = []
        self._held_bytes = self._size = 0

    def write(self, identity: PartIdentity, groups: Sequence[Group], scan: Scan) -> None:
        """Write the rows of a part, in groups of columns.

        Raises:
            OSError, _NoRoomError, UnfitRowsError: There is no such file.
        """
        salt, number = secrets.randbits(64), 0
        written: list[BlockDirectory] = []
        for group in groups:
            directory, rows, begun = DirectoryWriter(number, self._size), 0, self._size
            for batch in scan(group.schema.names):
                for first, pieces in group.blocks(batch):
                    block = part_file.sealed(pieces, salt, directory.number)
                    directory.add(rows + first, len(block))
                    self._put(block)
                rows += batch.num_rows
                if batch.num_rows == rows:  # the first one
                    self._room.require(begun + (self._size - begun) * identity.rows // max(rows, 1))
            require(rows == identity.rows, f"a part of {identity.rows} rows has {rows}")
            number = directory.number
            written.append(directory.directory())
        self._put(part_file.encode_foot(PartFoot(identity.encoded, salt, tuple(written))))
        self._flush()

    def _put(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        self._size += len(data)
        if self._held_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._room.take(self._held_bytes)
        data = memoryview(b"".join(self._held))
        while data:
            data = data[os.write(self.descriptor, data) :]
        self._held, self._held_bytes = [], 0


@contextlib.contextmanager
def _flocked(scratch: Path) -> Generator[bool]:
    """Hold the lock of a folder; False: another process has it, or nobody can."""
    try:
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(scratch / _LOCK, flags, 0o600)
    except OSError:
        yield False
        return
    try:
        is_mine = False
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_mine = True
        yield is_mine
    finally:
        os.close(descriptor)
