"""Power loss: real files, and after each sync what a disk could hold of them if the power went.

A name is on the disk if its directory was synced since it was given, and a file's bytes as of its
last sync. Of two images the one has nothing more; the other has all names of the moment, and zeros
where bytes were not synced, as file systems leave them that write names first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from siltstone.storage.files.files import Buffer, File, RealFile, RealFiles


@dataclass(frozen=True)
class Image:
    """What is on the disk: the bytes of each file, and the directories."""

    files: dict[str, bytes]
    folders: frozenset[str]
    what: str = field(compare=False)
    """The sync that came before."""

    def put(self, root: Path) -> Path:
        """Make it a directory that can be opened."""
        for folder in sorted(self.folders):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (root / name).write_bytes(data)
        return root


class _SyncedFile(RealFile):
    def __init__(self, files: PowerLoss, path: Path, flags: int) -> None:
        super().__init__(path, flags)
        self._files, self._path = files, path

    def sync(self) -> None:
        super().sync()
        self._files.now_durable(self._fd, self._path.name)

    def pwritev_synced(self, buffers: Sequence[Buffer], offset: int) -> bool:
        is_done = super().pwritev_synced(buffers, offset)
        if is_done:  # all before it is, too: what the log takes care of is tested elsewhere
            self._files.now_durable(self._fd, self._path.name)
        return is_done


class PowerLoss(RealFiles):
    """The real files below `root`, which begin empty; see the module.

    Inodes are what names lead to. One that lost its names is held, so that none is used again.

    Several files are synced at once, by threads. `_lock` guards all that is noted here, and lets
    no name go while an image is made of them.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._held: list[int] = []
        self._lock = threading.RLock()
        self.images: list[Image] | None = None

    def below(self, root: Path) -> PowerLoss:
        """Stay what it is: what it notes is noted here alone."""
        del root
        return self

    # what syncs

    def open(
        self, path: Path, *, create: bool = False, new: bool = False, write: bool = True
    ) -> File:
        flags = os.O_RDWR if write else os.O_RDONLY
        flags |= os.O_CREAT if create else 0
        return _SyncedFile(self, path, flags | os.O_CREAT | os.O_EXCL if new else flags)

    def sync_file(self, path: Path) -> None:
        super().sync_file(path)
        fd = os.open(path, os.O_RDONLY)
        self.now_durable(fd, path.name)
        os.close(fd)

    def sync_dir(self, path: Path) -> None:
        with self._lock:
            super().sync_dir(path)
            names = {entry.name: entry.inode() for entry in os.scandir(path)}
            self._names[path.stat().st_ino] = names
            self._seen(f"directory {path.name}")

    def now_durable(self, fd: int, name: str) -> None:
        """Take the bytes of an open file for durable."""
        with self._lock:
            size = os.fstat(fd).st_size
            self._bytes[os.fstat(fd).st_ino] = os.pread(fd, size, 0)
            self._seen(f"file {name}")

    # what takes names away

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._hold(path)
            super().unlink(path)

    def rename(self, old: Path, new: Path) -> None:
        with self._lock:
            if new.exists():
                self._hold(new)
            super().rename(old, new)

    def rmdir(self, path: Path) -> None:
        with self._lock:
            self._hold(path)
            super().rmdir(path)

    def _hold(self, path: Path) -> None:
        self._held.append(os.open(path, os.O_RDONLY))

    def close(self) -> None:
        """Let go of the inodes that are held."""
        for fd in self._held:
            os.close(fd)

    # images

    def _seen(self, what: str) -> None:
        if self.images is None:
            return
        for image in (self._least(what), self._names_first(what)):
            if image not in self.images:
                self.images.append(image)

    def _least(self, what: str) -> Image:
        files: dict[str, bytes] = {}
        folders = {"."}
        directories = {Path(where).stat().st_ino for where, _, _ in os.walk(self._root)}
        for path, inode in self._durable(Path(), self._root.stat().st_ino):
            if inode in self._names or inode in directories:
                folders.add(str(path))
            else:
                files[str(path)] = self._bytes.get(inode, b"")
        return Image(files, frozenset(folders), f"{what}, nothing more")

    def _durable(self, path: Path, inode: int) -> Iterator[tuple[Path, int]]:
        for name, below in self._names.get(inode, {}).items():
            yield path / name, below
            yield from self._durable(path / name, below)

    def _names_first(self, what: str) -> Image:
        files: dict[str, bytes] = {}
        folders = {"."}
        for where, inside, names in os.walk(self._root):
            here = Path(where).relative_to(self._root)
            folders.update(str(here / name) for name in inside)
            for name in names:
                status = (Path(where) / name).stat()
                zeros = bytes(status.st_size)
                files[str(here / name)] = self._bytes.get(status.st_ino, zeros)
        return Image(files, frozenset(folders), f"{what}, and names without bytes")
