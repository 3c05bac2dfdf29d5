"""Run files: how the files that find rows of a base by key are made, opened and read.

    tables/<table>/base/_siltstone/_keys/<token>.run

They lie where no clean-up of other programs looks, so they need no second name. They are read page
by page, with `pread`: a page of a map that the disk cannot read would end the process. `PageCache`
keeps pages for callers that read a few.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from siltstone.errors import CorruptionError, SiltstoneError, UnavailableError
from siltstone.formats.key_run import PAGE_BYTES, TRAILER_BYTES, Foot
from siltstone.formats.manifest import PRIVATE_DIRECTORY, KeyRun
from siltstone.formats.order.ordered_run import OrderedFoot
from siltstone.storage.files.files import File, Files, discard, reading

KEYS = "_keys"  # no transaction is called so: their names begin with a letter or a digit
_HANDLES_MAX = 64
_CACHED_PAGE_BYTES = PAGE_BYTES + 512
F = TypeVar("F", Foot, OrderedFoot)
_numbers = count()


def directory_of(folder: str) -> str:
    """Return the directory of the runs of a dataset."""
    return f"{folder}/{PRIVATE_DIRECTORY}/{KEYS}"


class _Handle:
    """An open file, closed when the last thread that reads from it is done."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():  # else modules may be gone
            self.file.close()


class PageCache:
    """Pages of runs, at most `bytes_max`, and open files, shared by all readers of a store.

    Two generations: pages enter the young one; when it is full it becomes the old one, and the old
    one goes. No lock: what is lost in between is read, or opened, again.
    """

    def __init__(self, bytes_max: int) -> None:
        self._pages_max = bytes_max // _CACHED_PAGE_BYTES // 2
        self._young: dict[int, Any] = {}
        self._old: dict[int, Any] = {}
        self._handles: dict[int, _Handle] = {}

    @property
    def nbytes(self) -> int:
        """The approximate bytes of all pages."""
        return (len(self._young) + len(self._old)) * _CACHED_PAGE_BYTES

    def get(self, number: int) -> Any:
        """Return a page if it is there, else None."""
        found = self._young.get(number)
        if found is None:
            found = self._old.get(number)
            if found is not None:
                self.put(number, found)
        return found

    def put(self, number: int, page: object) -> None:
        """Keep a page."""
        if len(self._young) >= self._pages_max:
            self._old, self._young = self._young, {}
        if self._pages_max:
            self._young[number] = page

    def handle(self, number: int, opened: Callable[[], File]) -> _Handle:
        """Return the open file of a run; hold it while you read."""
        found = self._handles.get(number)
        if found is None:
            if len(self._handles) >= _HANDLES_MAX:
                self._handles = {}
            found = self._handles[number] = _Handle(opened())
        return found

    def forget(self, number: int) -> None:
        """Close the file of a run; its pages go with their generation."""
        self._handles.pop(number, None)


class RunFile:
    """One file, read by `pread`, and its pages in the cache. Threads may share it."""

    def __init__(self, files: Files, path: Path, cache: PageCache) -> None:
        self.path, self._files, self._cache = path, files, cache
        self.first_number = next(_numbers) << 32
        """The number of its first page in the cache; the others follow."""

    def __del__(self) -> None:
        """Close the file: merged runs follow each other, and each would keep a descriptor."""
        self._cache.forget(self.first_number)

    def read(self, size: int, offset: int) -> bytes:
        """Return `size` bytes.

        Raises:
            CorruptionError: The file is missing, or ends before.
            UnavailableError: The file system refuses.
        """
        handle = self._cache.handle(self.first_number, self._opened)
        try:
            data = handle.file.pread(size, offset)
        except OSError as error:
            raise UnavailableError(f"{self.path} cannot be read: {error}") from error
        if len(data) < size:
            raise CorruptionError(self.path, offset, f"it ends after {offset + len(data)} bytes")
        return data

    def foot(
        self,
        run: KeyRun,
        length_of: Callable[[bytes, str, int, str], int],
        decode: Callable[[bytes, str, int, str], F],
    ) -> F:
        """Return the end of the file of a run, read by the functions of its form.

        Raises:
            CorruptionError: It is not what was written, or of another number of entries.
            UnavailableError: As `read`.
        """
        path, at = str(self.path), run.size - TRAILER_BYTES
        length = length_of(self.read(TRAILER_BYTES, at), path, run.size, run.xxh3)
        foot = decode(self.read(length, at - length), path, run.size, run.xxh3)
        if foot.entries != run.entries:
            reason = f"it has {foot.entries} entries, the pin says {run.entries}"
            raise CorruptionError(path, at - length, reason)
        return foot

    def _opened(self) -> File:
        with reading(self.path):
            return self._files.open(self.path, write=False)


@contextlib.contextmanager
def new_run_file(files: Files, path: Path) -> Generator[File]:
    """Open a new file; on an error remove it, if possible: another run is written instead."""
    file = files.open(path, new=True)
    try:
        yield file
    except (OSError, SiltstoneError, MemoryError):
        discard(files, path)
        raise
    finally:
        file.close()
