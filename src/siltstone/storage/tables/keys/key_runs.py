"""Key runs: the files that find rows of a base by the codes of keys (`formats.key_run`).

Each page is checked when it is read from the disk. Point reads keep pages in the cache; a search
for many keys reads the pages that it touches, in order, and keeps none.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import xxhash

from siltstone.formats import key_run
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.key_run import (
    PAGE_BYTES,
    PAGE_ROWS,
    Entries,
    Foot,
    Page,
    joined,
)
from siltstone.formats.keys import Codes, pairs
from siltstone.formats.manifest import KeyRun
from siltstone.storage.files.files import Files
from siltstone.storage.tables.keys.run_file import PageCache, RunFile, new_run_file

_BLOCK_PAGES = 256
_FEW = 32
_NONE = np.zeros(0, np.int64)


class OpenRun:
    """One key run: its foot in memory, its pages by `pread`. Immutable; threads may share it."""

    def __init__(self, files: Files, root: Path, run: KeyRun, cache: PageCache) -> None:
        """Read the foot.

        Raises:
            CorruptionError: It is damaged, or missing.
        """
        self.run, self._file = run, RunFile(files, root / run.path, cache)
        self._path, self._read, self._cache = self._file.path, self._file.read, cache
        self.foot = self._file.foot(run, key_run.foot_bytes, key_run.decode_foot)

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
        for numbers in growing(pages[::-1] if descending else pages):
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
        number = self._file.first_number + page
        found = self._cache.get(number)
        if found is None:
            data = self._read(PAGE_BYTES, page * PAGE_BYTES)
            found = key_run.decode_page(data, str(self._path), self.foot, page)
            self._cache.put(number, found)
        return found


def growing(pages: range) -> Iterator[range]:
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
    with new_run_file(files, root / path) as file:
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
