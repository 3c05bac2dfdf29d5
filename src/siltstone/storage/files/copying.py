"""Copying: an immutable file under another name, its bytes checked on the way.

    bytes    copied (shared, where the file system can clone), synced, then renamed into place
    link     one more name of the same file: no space, but damage to one damages both

In one backup or restore (`Copies`) each file is copied once, whatever number of names it has.

An existing name has the complete, correct bytes; a crash leaves temporary files. The caller syncs
the directories.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import xxhash

from siltstone.errors import CorruptionError, UnavailableError
from siltstone.formats.inventory import InventoryFile
from siltstone.storage.files.files import Files, discard

_CHUNK_BYTES = 4 << 20


def hash_of(files: Files, path: Path) -> tuple[int, str]:
    """Return the present size and xxh3 of a file, read in bounded pieces."""
    digest, offset = xxhash.xxh3_64(), 0
    with closing(files.open(path, write=False)) as file:
        while chunk := file.pread(_CHUNK_BYTES, offset):
            digest.update(chunk)
            offset += len(chunk)
    return offset, digest.hexdigest()


def is_there(files: Files, path: Path, expected: InventoryFile) -> bool:
    """Say whether the file is there with the bytes expected; all of them are read."""
    if not files.exists(path) or files.size(path) != expected.size:
        return False
    return hash_of(files, path) == (expected.size, expected.xxh3)


def copy_file(files: Files, source: Path, target: Path, expected: InventoryFile) -> None:
    """Put a copy of `source` at `target`; replace an existing file.

    Raises:
        CorruptionError: The bytes of `source` are not those expected; `target` is as it was.
        OSError: The file system refuses.
    """
    temporary = files.temporary(target)
    try:
        found = _clone(files, source, temporary) or _copy(files, source, temporary)
        require_same(source, found, expected)
        files.rename(temporary, target)
    except BaseException:
        discard(files, temporary)
        raise


def copy_new(files: Files, source: Path, target: Path, *, apart: bool = False) -> None:
    """Put a copy of `source` at `target`, whole and synced, if nothing has that name.

    `apart`: they share no bytes on the disk either, so that damage to one leaves the other whole.

    Raises:
        FileExistsError: The name is taken.
        OSError: The file system refuses.
    """
    temporary = files.temporary(target)
    try:
        if apart or _clone(files, source, temporary) is None:
            _copy(files, source, temporary)
        files.link(temporary, target)
    finally:
        discard(files, temporary)


def link_file(files: Files, source: Path, target: Path, expected: InventoryFile) -> None:
    """Give `source` the name `target`, too; replace an existing file. Errors as `copy_file`.

    Raises:
        UnavailableError: They are on two file systems.
    """
    require_same(source, hash_of(files, source), expected)
    temporary = files.temporary(target)
    try:
        files.link(source, temporary)
    except OSError as error:
        reason = f"{target} cannot be a hard link to {source}: {error}; use copies"
        raise UnavailableError(reason) from error
    files.rename(temporary, target)
    discard(files, temporary)  # two names of one file: the rename did nothing


class Copies:
    """The copies of one backup or restore: two names of one file become two names of one copy.

    `put` is `copy_file` or `link_file`. One thread.
    """

    def __init__(
        self, files: Files, put: Callable[[Files, Path, Path, InventoryFile], None] = copy_file
    ) -> None:
        self._files, self._put = files, put
        self._targets: dict[tuple[int, int], Path] = {}
        self.folders: set[Path] = set()
        """Where copies are."""

    def once(self, source: Path, target: Path, expected: InventoryFile) -> bool:
        """Copy a file unless an earlier try did; say whether its bytes were copied now.

        Raises:
            CorruptionError: The source is missing or damaged.
        """
        if target.parent not in self.folders:
            self._files.mkdir(target.parent)
            self.folders.add(target.parent)
        try:
            first = self._targets.setdefault(self._files.identity(source), target)
            if is_there(self._files, target, expected):
                return False
            if first != target and self._is_linked(first, target, expected):
                return False
            self._put(self._files, source, target, expected)
        except FileNotFoundError as error:
            raise CorruptionError(source, None, "the file is missing") from error
        return True

    def _is_linked(self, first: Path, target: Path, expected: InventoryFile) -> bool:
        """Give the first copy one more name; False: the file system refuses."""
        try:
            link_file(self._files, first, target, expected)
        except UnavailableError:
            return False
        return True


def _clone(files: Files, source: Path, target: Path) -> tuple[int, str] | None:
    if not files.clone(source, target):
        return None
    files.sync_file(target)
    return hash_of(files, target)


def _copy(files: Files, source: Path, target: Path) -> tuple[int, str]:
    digest, offset = xxhash.xxh3_64(), 0
    with (
        closing(files.open(source, write=False)) as reader,
        closing(files.open(target, new=True)) as writer,
    ):
        while chunk := reader.pread(_CHUNK_BYTES, offset):
            digest.update(chunk)
            writer.pwrite(chunk, offset)
            offset += len(chunk)
        writer.sync()
    return offset, digest.hexdigest()


def require_same(path: Path | str, found: tuple[int, str], expected: InventoryFile) -> None:
    """Check the (size, xxh3) of a file.

    Raises:
        CorruptionError: They are not the expected ones.
    """
    size, xxh3 = found
    if size != expected.size:
        reason = f"the file has {size} bytes, but {expected.size} were written; restore it"
        raise CorruptionError(path, None, reason)
    if xxh3 != expected.xxh3:
        raise CorruptionError(
            path, None, f"the xxh3 is {xxh3}, but {expected.xxh3} was written; restore it"
        )
