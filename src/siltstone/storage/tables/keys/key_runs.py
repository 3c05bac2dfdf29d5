"""Key runs: the files that find rows of a base by key (`formats.key_run` has their bytes).

    tables/<table>/base/_siltstone/_keys/<token>.run

They lie where no clean-up of other programs looks, so they need no second name. A run is read page
by page, with `pread`: a page of a map that the disk cannot read would end the process. Each page is
checked when it is read from the disk. `PageCache` keeps pages for point reads; a search for many
keys reads the pages that it touches, in order, and keeps none.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import xxhash

from siltstone.errors import CorruptionError, SiltstoneError, UnavailableError
from siltstone.formats import key_run
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.key_run import PAGE_BYTES, PAGE_ROWS, TRAILER_BYTES, Entries, Foot, Page
from siltstone.formats.keys import Codes, pairs
from siltstone.formats.manifest import PRIVATE_DIRECTORY, KeyRun
from siltstone.storage.files.files import File, Files, discard

KEYS = "_keys"  # no transaction is called so: their names begin with a letter or a digit
_BLOCK_PAGES = 256
_FEW = 32
_HANDLES_MAX = 64
_CACHED_PAGE_BYTES = PAGE_BYTES + 512
_numbers = count()
_NONE = np.zeros(0, np.int64)


def directory_of(folder: str) -> str:
    """Return the directory of the key runs of a dataset."""
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
    """Pages of key runs, at most `bytes_max`, and open files, shared by all readers of a store.

    Two generations: pages enter the young one; when it is full it becomes the old one, and the old
    one goes. No lock: what is lost in between is read, or opened, again.
    """

    def __init__(self, bytes_max: int) -> None:
        self._pages_max = bytes_max // _CACHED_PAGE_BYTES // 2
        self._young: dict[int, Page] = {}
        self._old: dict[int, Page] = {}
        self._handles: dict[int, _Handle] = {}

    @property
    def nbytes(self) -> int:
        """The approximate bytes of all pages."""
        return (len(self._young) + len(self._old)) * _CACHED_PAGE_BYTES

    def get(self, number: int) -> Page | None:
        """Return a page if it is there."""
        found = self._young.get(number)
        if found is None:
            found = self._old.get(number)
            if found is not None:
                self.put(number, found)
        return found

    def put(self, number: int, page: Page) -> None:
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


class OpenRun:
    """One key run: its foot in memory, its pages by `pread`. Immutable; threads may share it."""

    def __init__(self, files: Files, root: Path, run: KeyRun, cache: PageCache) -> None:
        """Read the foot.

        Raises:
            CorruptionError: It is damaged, or missing.
        """
        self._files, self._path, self._cache, self.run = files, root / run.path, cache, run
        self._first_number = next(_numbers) << 32
        try:
            self.foot = self._read_foot()
        except Exception:
            cache.forget(self._first_number)
            raise

    def __del__(self) -> None:
        """Close the file: merged runs follow each other, and each would keep a descriptor."""
        self._cache.forget(self._first_number)

    def _read_foot(self) -> Foot:
        path, size = str(self._path), self.run.size
        at = size - TRAILER_BYTES
        length = key_run.foot_bytes(self._read(TRAILER_BYTES, at), path, size, self.run.xxh3)
        body = self._read(length, at - length)
        foot = key_run.decode_foot(body, path, size, self.run.xxh3)
        if foot.entries != self.run.entries:
            reason = f"it has {foot.entries} entries, the pin says {self.run.entries}"
            raise CorruptionError(path, at - length, reason)
        return foot

    def find(self, code: int) -> list[int]:
        """Return the places of a code."""
        firsts, found = self.foot.firsts, list[int]()
        page = max(bisect_left(firsts, code) - 1, 0)
        while page < len(firsts):
            codes, places = self._page(page)
            at = bisect_left(codes, code)
            while at < len(codes) and codes[at] == code:
                found.append(places[at])
                at += 1
            page += 1
            if at < len(codes) or page == len(firsts) or firsts[page] != code:
                break
        return found

    def find_many(self, wanted: Codes) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of an index into `wanted` (ascending) and a place of that code.

        It reads the pages that may have one of them, `_BLOCK_PAGES` at a time.
        """
        if len(wanted) <= _FEW:
            found = [(i, at) for i, code in enumerate(wanted.tolist()) for at in self.find(code)]
            needles = np.array([i for i, _ in found], np.int64)
            return needles, np.array([at for _, at in found], np.uint64)
        needles_found, places_found = [_NONE], [_NONE.view(np.uint64)]
        for codes, places in self._blocks(self._touched(wanted)):
            low = int(wanted.searchsorted(codes[0]))
            high = int(wanted.searchsorted(codes[-1], "right"))
            needles, at = pairs(codes, wanted[low:high])
            needles_found.append(needles + low)
            places_found.append(places[at])
        return np.concatenate(needles_found), np.concatenate(places_found)

    def entries(self) -> Iterator[Entries]:
        """Yield all entries in order, in blocks."""
        return self._blocks(range(self.foot.pages))

    def stretch(self, first: int, last: int, *, descending: bool) -> Iterator[Entries]:
        """Yield the entries with first <= code <= last by code, ascending or descending.

        A page comes first, which is kept for the next reader, then more and more at once: who takes
        a few entries reads a page or two.
        """
        low = max(bisect_left(self.foot.firsts, first) - 1, 0)
        pages = range(low, bisect_right(self.foot.firsts, last))
        for numbers in _growing(pages[::-1] if descending else pages):
            codes, places = self._few(numbers)
            cut = slice(int(codes.searchsorted(first)), int(codes.searchsorted(last, "right")))
            if descending:
                yield codes[cut][::-1], places[cut][::-1]
            else:
                yield codes[cut], places[cut]

    def _few(self, numbers: range) -> Entries:
        """Return the entries of adjacent pages, those of one by way of the cache."""
        if len(numbers) > 1:
            return next(self._blocks(range(min(numbers), max(numbers) + 1)))
        codes, places = self._page(numbers[0])
        return np.asarray(codes), np.asarray(places)

    def _touched(self, wanted: Codes) -> Sequence[int]:
        """Return the numbers of the pages that may have one of some codes, ascending."""
        firsts, pages = np.asarray(self.foot.firsts), self.foot.pages
        if not pages:
            return ()
        low = np.maximum(firsts.searchsorted(wanted) - 1, 0)
        end = np.maximum(firsts.searchsorted(wanted, "right"), 1)
        steps = np.bincount(low, minlength=pages + 1) - np.bincount(end, minlength=pages + 1)
        touched: list[int] = np.flatnonzero(np.cumsum(steps)).tolist()
        return touched

    def _blocks(self, pages: Sequence[int]) -> Iterator[Entries]:
        """Yield the entries of some pages, in order."""
        for at in range(0, len(pages), _BLOCK_PAGES):
            numbers = pages[at : at + _BLOCK_PAGES]
            data = b"".join(self._adjacent(numbers))
            yield key_run.decode_pages(data, str(self._path), self.foot, numbers)

    def _adjacent(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """Yield the bytes of some pages; those that lie side by side are read at once."""
        first = last = numbers[0]
        for number in [*numbers[1:], -1]:
            if number == last + 1:
                last = number
                continue
            yield self._read((last + 1 - first) * PAGE_BYTES, first * PAGE_BYTES)
            first = last = number

    def _page(self, page: int) -> Page:
        number = self._first_number + page
        found = self._cache.get(number)
        if found is None:
            data = self._read(PAGE_BYTES, page * PAGE_BYTES)
            found = key_run.decode_page(data, str(self._path), self.foot, page)
            self._cache.put(number, found)
        return found

    def _opened(self) -> File:
        try:
            return self._files.open(self._path, write=False)
        except FileNotFoundError as error:
            raise CorruptionError(self._path, None, "the file is missing") from error
        except OSError as error:
            raise UnavailableError(f"{self._path} cannot be read: {error}") from error

    def _read(self, size: int, offset: int) -> bytes:
        handle = self._cache.handle(self._first_number, self._opened)
        try:
            data = handle.file.pread(size, offset)
        except OSError as error:
            raise UnavailableError(f"{self._path} cannot be read: {error}") from error
        if len(data) < size:
            raise CorruptionError(self._path, offset, f"it ends after {offset + len(data)} bytes")
        return data


def _growing(pages: range) -> Iterator[range]:
    """Yield pages in groups: of one twice, then of twice as many each time, up to a block."""
    at, count = 0, 1
    while at < len(pages):
        yield pages[at : at + count]
        at, count = at + count, min(max(at, 1) * 2, _BLOCK_PAGES)


def write_run(
    files: Files,
    root: Path,
    path: str,
    blocks: Iterable[Entries],
    *,
    parts: Iterable[int],
    is_synced: bool = True,
) -> tuple[KeyRun, InventoryFile]:
    """Write a run and sync its bytes, not its name; `blocks` are ascending, from one to the next.

    `is_synced`: not if it can be done without, as staged keys.

    Raises:
        OSError: The file system refuses.
    """
    salt, whole = secrets.randbits(64), xxhash.xxh3_64()
    firsts, size, entries = list[np.ndarray](), 0, 0
    with _new(files, root / path) as file:
        for codes, places in _in_whole_pages(blocks):
            first = size // PAGE_BYTES
            data = key_run.encode_pages(codes, places, salt=salt, first=first)
            file.pwrite(data, size)
            whole.update(data)
            firsts.append(codes[::PAGE_ROWS].copy())  # a view would keep all codes
            size, entries = size + len(data), entries + len(codes)
        index = np.concatenate([_NONE, *firsts])
        foot = Foot(salt, entries, tuple(sorted(parts)), memoryview(index.data))
        tail, checksum = key_run.encode_foot(foot)
        file.pwrite(tail, size)
        whole.update(tail)
        if is_synced:
            file.sync()
    size += len(tail)
    run = KeyRun(path, size, checksum, entries)
    return run, InventoryFile(path, size, whole.hexdigest())


@contextlib.contextmanager
def _new(files: Files, path: Path) -> Generator[File]:
    """Open a new file; on an error remove it, if possible: another run is written instead."""
    file = files.open(path, new=True)
    try:
        yield file
    except (OSError, SiltstoneError, MemoryError):
        discard(files, path)
        raise
    finally:
        file.close()


def _in_whole_pages(blocks: Iterable[Entries]) -> Iterator[Entries]:
    """Yield entries in blocks of whole pages; the last block may end in a part of one."""
    held: list[Entries] = []
    rows = 0
    for block in blocks:
        held.append(block)
        rows += len(block[0])
        if rows < PAGE_ROWS:
            continue
        codes, places = joined(held)
        whole = rows - rows % PAGE_ROWS
        for low, high in pairwise([*range(0, whole, _BLOCK_PAGES * PAGE_ROWS), whole]):
            yield codes[low:high], places[low:high]
        held, rows = [(codes[whole:], places[whole:])], rows - whole
    if rows:
        yield joined(held)


def joined(held: list[Entries]) -> Entries:
    """Return entries as one block."""
    if len(held) == 1:
        return held[0]
    return np.concatenate([c for c, _ in held]), np.concatenate([p for _, p in held])
