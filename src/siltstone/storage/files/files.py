"""Files: the seam to the file system, and the real one (Linux).

    create_if_absent    temporary file ─▶ fsync ─▶ link ─▶ unlink temporary ─▶ sync directory
    replace             temporary file ─▶ fsync ─▶ rename ─▶ sync directory
    mkdir               per missing level: mkdir ─▶ sync its parent

A name is durable only when its directory is synced, a file's bytes only when the file is. These
three are written once, as functions over the small steps of `Files`, so that a simulation crashes
between the same steps. No method waits for a lock, none retries a failed sync: Linux marks the
pages of a failed sync clean, and the next sync would succeed without them (Rebello, ATC 2020).

Over 400 lines, because the protocol and the one real implementation are read side by side.
A temporary file that a crash leaves is named `.<name>.<random>.tmp` and is never read.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, Self

from siltstone.errors import CorruptionError, UnavailableError
from siltstone.storage.files.handles import Handle, Handles, Left
from siltstone.storage.files.locks import Lock, RealLock
from siltstone.storage.files.real_file import Buffer, RealFile

TEMPORARY_SUFFIX = ".tmp"
REMOTE_TYPES = ("nfs", "cifs", "smb", "fuse", "9p", "afs", "ceph", "glusterfs", "lustre")
"""What the types of file systems begin with that reach over a network, or to a process."""
_ZEROS_PER_CALL_BYTES = 1 << 20
_FICLONE = 0x4004_9409  # ioctl_ficlone(2)


class File(Protocol):
    """An open file. Offsets and sizes are bytes."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at `offset`.

        Raises:
            OSError: Any part of it may be written.
        """
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all buffers, one after the other, from `offset` on; errors as `pwrite`."""
        ...

    def pwritev_synced(self, buffers: Sequence[Buffer], offset: int) -> bool:
        """Write all buffers and make them durable, in one step; say whether the system can.

        Nothing else is durable afterwards: not the bytes before `offset` (pwritev2(2), RWF_DSYNC).
        If it returns False it wrote nothing: write and sync instead.

        Raises:
            OSError: As of `pwrite` or `sync`.
        """
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Return the bytes from `offset` on; fewer than `size` only at the end of the file."""
        ...

    def pread_stored(self, size: int, offset: int) -> bytes:
        """Return the bytes as they are on the disk; where the system cannot tell, as `pread`.

        What a failed sync left is readable, and never durable: no later sync fails for it.
        """
        ...

    def sync(self) -> None:
        """Make content and size durable (fdatasync), not the name. Never again after an error.

        A file that is only read can be synced, too.
        """
        ...

    def size(self) -> int: ...

    def close(self) -> None:
        """Close. Further calls do nothing."""
        ...


class Files(Protocol):
    """The file system. Every method raises OSError as the system does."""

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        """Open a file.

        Args:
            path: Names the file.
            create: Create the file if it does not exist; keep an existing one.
            new: Create the file; FileExistsError if the name is taken.
            write: Open for writing, too.
        """
        ...

    def read(self, path: Path) -> bytes: ...

    def write(self, path: Path, data: Buffer) -> None:
        """Make a new file and sync its content, not its name.

        Raises:
            FileExistsError: The name is taken.
        """
        ...

    def create_if_absent(self, path: Path, data: Buffer) -> bool:
        """Create a durable file, whole or not at all; False when the name is taken.

        Raises:
            OSError: The file may or may not be there: read it back.
        """
        ...

    def replace(self, path: Path, data: Buffer, *, durable: bool = True) -> None:
        """Put `data` in place of the file, whole or not at all; without `durable` no sync."""
        ...

    def rename(self, old: Path, new: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def link(self, old: Path, new: Path) -> None:
        """Give a file one more name; FileExistsError when that is taken."""
        ...

    def clone(self, old: Path, new: Path) -> bool:
        """Make `new` a file that shares the bytes of `old` until one is written; not synced.

        Returns False, without a file, if the file system cannot share bytes.
        """
        ...

    def sync_dir(self, path: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def sync_file(self, path: Path) -> None:
        """Make a closed file's content durable (fsync)."""
        ...

    def list(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        ...

    def mkdir(self, path: Path) -> None:
        """Make a directory and its missing parents, durable; nothing to do when it is there."""
        ...

    def make_level(self, path: Path) -> None:
        """Make one directory (mkdir(2)), not durable; a step of `mkdir`.

        It is open to no more users than its parent, whatever the umask.
        """
        ...

    def restrict(self, path: Path, mode: int) -> None:
        """Set the mode of a directory that was just made (chmod)."""
        ...

    def rmdir(self, path: Path) -> None: ...

    def exists(self, path: Path) -> bool: ...

    def is_dir(self, path: Path) -> bool: ...

    def size(self, path: Path) -> int: ...

    def mtime(self, path: Path) -> float:
        """Return when the content last changed: seconds since 1970."""
        ...

    def identity(self, path: Path) -> tuple[int, int]:
        """Return (device, inode): equal for all names of one file or directory."""
        ...

    def lock(self, path: Path, *, shared: bool = False, create: bool = False) -> Lock | None:
        """Take a flock without waiting; None when it is held, by this process or another.

        A shared lock needs no permission to write.
        """
        ...

    def preallocate(self, path: Path, size: int) -> None:
        """Make a new file of written zeros, synced, so that later syncs need no metadata."""
        ...

    def temporary(self, path: Path) -> Path:
        """Return an unused name in the directory of `path`."""
        ...

    def filesystem(self, path: Path) -> str:
        """Return the type of the file system that `path` (or its nearest parent) is on: "ext4"."""
        ...

    def below(self, root: Path) -> Files:
        """Return these files, bound to the directories that `root` and its `manifest` are now.

        Paths below `root` go by handles of them (see `handles`). Bound files are what they are.
        """
        ...

    def are_in_place(self) -> bool:
        """Return whether `root` still leads to the directories that these are bound to, if any."""
        ...

    def let_go(self) -> None:
        """Go by paths from now on; the handles are closed. For a store that is closed."""
        ...


PRIVATE_MODE, GROUP_MODE = 0o700, 0o750
"""Of the directory of a new store or backup: for its user alone, or for the group to read."""
ABSENT = (FileNotFoundError, NotADirectoryError)


@contextlib.contextmanager
def refusals(what: str, *, but: tuple[type[OSError], ...] = ()) -> Generator[None]:
    """Turn what the file system refuses into an error that says what it was needed for.

    `but` are errors that are an answer: the caller knows which.
    """
    try:
        yield
    except but:
        raise
    except OSError as error:
        raise UnavailableError(f"{what}: {error}") from error


@contextlib.contextmanager
def reading(path: Path, what: str = "file") -> Generator[None]:
    """Say what is wrong with a file that has to be there.

    Raises:
        CorruptionError: It is missing.
        UnavailableError: The file system refuses to read it; its bytes are not known.
    """
    with refusals(f"{path} cannot be read"):
        try:
            yield
        except FileNotFoundError as error:
            raise CorruptionError(path, None, f"the {what} is missing") from error


def names_in(files: Files, directory: Path) -> list[str]:
    """Return the names in a directory, sorted; none if it does not exist."""
    try:
        return files.list(directory)
    except ABSENT:
        return []


def write_new(files: Files, path: Path, data: Buffer) -> None:
    """Write and sync a new file; on an error remove it, if possible."""
    write_parts(files, path, [data])


def write_parts(files: Files, path: Path, parts: Iterable[Buffer]) -> None:
    """`write_new`, of a file whose parts are not all in memory."""
    _fill_new(files, path, parts, sync=True)


def create_by_link(files: Files, path: Path, data: Buffer) -> bool:
    """`Files.create_if_absent` over the small steps."""
    temporary = files.temporary(path)
    write_new(files, temporary, data)
    try:
        files.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        discard(files, temporary)  # a leftover is harmless
    files.sync_dir(path.parent)
    return True


def replace_by_rename(files: Files, path: Path, data: Buffer, *, durable: bool) -> None:
    """`Files.replace` over the small steps."""
    temporary = files.temporary(path)
    _fill_new(files, temporary, [data], sync=durable)
    try:
        files.rename(temporary, path)
    except OSError:
        discard(files, temporary)
        raise
    if durable:
        files.sync_dir(path.parent)


def make_directories(files: Files, path: Path) -> None:
    """`Files.mkdir` over the small steps, from the top down."""
    missing: list[Path] = []
    level = path
    while not files.exists(level):
        missing.append(level)
        level = level.parent
    if not files.is_dir(level):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(level))
    # The lowest level that is there: the process that made it may have died before its sync. Those
    # above were synced before it was made. A parent that we may not read was not made by us.
    with contextlib.suppress(PermissionError):
        files.sync_dir(level.parent)
    for level in reversed(missing):
        with contextlib.suppress(FileExistsError):
            files.make_level(level)
        files.sync_dir(level.parent)


def make_private(files: Files, path: Path, mode: int = PRIVATE_MODE) -> None:
    """Make a directory for data, durable; one that is there already keeps its mode."""
    is_new = not files.exists(path)
    files.mkdir(path)
    if is_new:
        files.restrict(path, mode)


def fill_with_zeros(files: Files, path: Path, size: int) -> None:
    """`Files.preallocate` over the small steps."""
    zeros = bytes(min(size, _ZEROS_PER_CALL_BYTES))
    steps = range(0, size, _ZEROS_PER_CALL_BYTES)
    _fill_new(files, path, (zeros[: size - offset] for offset in steps), sync=True)


def _fill_new(files: Files, path: Path, parts: Iterable[Buffer], *, sync: bool) -> None:
    file = files.open(path, new=True)
    try:
        offset = 0
        for part in parts:
            file.pwrite(part, offset)
            offset += len(part)
        if sync:
            file.sync()
    except OSError:
        discard(files, path)
        raise
    finally:
        file.close()


def discard(files: Files, path: Path) -> None:
    """Remove a file, if possible."""
    with contextlib.suppress(OSError):
        files.unlink(path)


class RealFiles:
    """The file system of this machine. Its state is what it is bound to; any thread may use it."""

    _at: Handles | Left | None = None

    def below(self, root: Path) -> Self:
        if isinstance(self._at, Handles) and self._at.root == os.fspath(root):
            return self
        bound = copy.copy(self)
        bound._at = Handles(root)  # noqa: SLF001 - a copy of ours
        return bound

    def are_in_place(self) -> bool:
        at = self._at
        return at is None or at.are_in_place()

    def let_go(self) -> None:
        at = self._at
        self._at = at.left() if isinstance(at, Handles) else at

    def _of(self, path: Path) -> tuple[Path | str, Handle | None]:
        at = self._at
        return (path, None) if at is None else at.of(path)

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        flags = os.O_RDWR if write else os.O_RDONLY
        flags |= os.O_CREAT if create else 0
        name, at = self._of(path)
        return RealFile(name, flags | os.O_CREAT | os.O_EXCL if new else flags, at)

    def read(self, path: Path) -> bytes:
        name, at = self._of(path)
        with open(name, "rb", opener=partial(os.open, dir_fd=at)) as file:
            return file.read()

    def write(self, path: Path, data: Buffer) -> None:
        write_new(self, path, data)

    def create_if_absent(self, path: Path, data: Buffer) -> bool:
        return create_by_link(self, path, data)

    def replace(self, path: Path, data: Buffer, *, durable: bool = True) -> None:
        replace_by_rename(self, path, data, durable=durable)

    def rename(self, old: Path, new: Path) -> None:
        (source, here), (target, there) = self._of(old), self._of(new)
        os.rename(source, target, src_dir_fd=here, dst_dir_fd=there)

    def unlink(self, path: Path) -> None:
        name, at = self._of(path)
        os.unlink(name, dir_fd=at)

    def link(self, old: Path, new: Path) -> None:
        (source, here), (target, there) = self._of(old), self._of(new)
        os.link(source, target, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)

    def clone(self, old: Path, new: Path) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        with self._descriptor(old, os.O_RDONLY) as source, self._descriptor(new, flags) as target:
            try:
                fcntl.ioctl(target, _FICLONE, source)
            except OSError:
                self.unlink(new)
                return False
        return True

    def sync_dir(self, path: Path) -> None:
        self._fsync(path, os.O_RDONLY | os.O_DIRECTORY)

    def sync_file(self, path: Path) -> None:
        self._fsync(path, os.O_RDONLY)

    def list(self, path: Path) -> list[str]:
        with self._descriptor(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            return sorted(os.listdir(fd))  # noqa: PTH208 - no `Path` for each of 10,000 records

    def mkdir(self, path: Path) -> None:
        make_directories(self, path)

    def make_level(self, path: Path) -> None:
        name, at = self._of(path)
        os.mkdir(name, self._mode_below(path.parent), dir_fd=at)

    def restrict(self, path: Path, mode: int) -> None:
        name, at = self._of(path)
        os.chmod(name, mode, dir_fd=at)

    def rmdir(self, path: Path) -> None:
        name, at = self._of(path)
        os.rmdir(name, dir_fd=at)

    def exists(self, path: Path) -> bool:
        try:
            name, at = self._of(path)
            os.stat(name, dir_fd=at, follow_symlinks=False)
        except ABSENT:
            return False
        return True

    def is_dir(self, path: Path) -> bool:
        try:
            return stat.S_ISDIR(self._status(path).st_mode)
        except ABSENT:
            return False

    def size(self, path: Path) -> int:
        return self._status(path).st_size

    def mtime(self, path: Path) -> float:
        return self._status(path).st_mtime

    def identity(self, path: Path) -> tuple[int, int]:
        status = self._status(path)
        return status.st_dev, status.st_ino

    def lock(self, path: Path, *, shared: bool = False, create: bool = False) -> Lock | None:
        flags = os.O_RDONLY if shared else os.O_RDWR
        mode = self._mode_below(path.parent) & 0o666 if create else 0
        fd = self._opened(path, flags | os.O_CREAT if create else flags, mode)
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return RealLock(fd)

    def preallocate(self, path: Path, size: int) -> None:
        fill_with_zeros(self, path, size)

    def temporary(self, path: Path) -> Path:
        return path.with_name(f".{path.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")

    def filesystem(self, path: Path) -> str:
        return mount_type(path.resolve(), Path("/proc/self/mountinfo").read_text())

    def _opened(self, path: Path, flags: int, mode: int = 0o666) -> int:
        name, at = self._of(path)
        return os.open(name, flags | os.O_CLOEXEC, mode, dir_fd=at)

    @contextlib.contextmanager
    def _descriptor(self, path: Path, flags: int) -> Generator[int]:
        fd = self._opened(path, flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def _fsync(self, path: Path, flags: int) -> None:
        with self._descriptor(path, flags) as fd:
            os.fsync(fd)

    def _status(self, path: Path) -> os.stat_result:
        name, at = self._of(path)
        return os.stat(name, dir_fd=at)

    def _mode_below(self, parent: Path) -> int:
        """Return the mode of what is made in a directory: open to no more users than that."""
        return self._status(parent).st_mode & 0o777 | 0o700


def mount_type(path: Path, mountinfo: str) -> str:
    """Return the type of the mount that `path` (resolved) is under: the longest, then the last.

    A line of mountinfo(5): `36 35 98:0 /root /mount/point rw ... - type source options`.
    """
    best, best_type = -1, "unknown"
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        octal = re.compile(r"\\([0-7]{3})")
        point = octal.sub(lambda m: chr(int(m[1], 8)), head.split(" ")[4])
        if path.is_relative_to(point) and len(Path(point).parts) >= best:
            best, best_type = len(Path(point).parts), tail.split(" ")[0]
    return best_type


def is_temporary(name: str) -> bool:
    """Return whether a file is one that a crash left before it had its name."""
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)
