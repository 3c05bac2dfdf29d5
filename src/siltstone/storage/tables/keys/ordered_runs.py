"""Ordered runs: the files that give rows of a base in the order of keys whose codes are hashes.

They lie beside the key runs (`run_file`), and are read and checked as those are, page by page
(`formats.order.ordered_run` has their bytes).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

import xxhash

from siltstone.formats.conversion.arrow_stream import gathered
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.key_run import PAGE_BYTES, joined
from siltstone.formats.manifest import KeyRun
from siltstone.formats.order import ordered_run
from siltstone.formats.order.ordered_run import (
    OrderedEntries,
    OrderedPage,
    decode_page,
)
from siltstone.storage.files.files import Files
from siltstone.storage.tables.keys.key_runs import growing
from siltstone.storage.tables.keys.run_file import PageCache, RunFile, new_run_file

_BLOCK_BYTES = 1 << 20


class OpenOrdered:
    """One ordered run: its foot in memory, its pages by `pread`. Immutable; threads share it."""

    def __init__(self, files: Files, root: Path, run: KeyRun, cache: PageCache) -> None:
        """Read the foot.

        Raises:
            CorruptionError: It is damaged, or missing.
        """
        self.run, self._cache = run, cache
        self._file = RunFile(files, root / run.path, cache)
        self.foot = self._file.foot(run, ordered_run.foot_bytes, ordered_run.decode_foot)

    def entries(self) -> Iterator[OrderedEntries]:
        """Yield all entries in order, in blocks."""
        first = 0
        while first < self.foot.pages:
            end, start = first + 1, self.foot.span(first)[0]
            while end < self.foot.pages and self.foot.span(end)[1] - start <= _BLOCK_BYTES:
                end += 1
            yield self._block(range(first, end))
            first = end

    def stretch(
        self, first: bytes, end: bytes | None, *, descending: bool
    ) -> Iterator[OrderedEntries]:
        """Yield the entries with first <= key < end (None: open), ascending or descending.

        A page comes first, which is kept for the next reader, then more and more at once.
        """
        pages = self.foot.stretch(first, end)
        for numbers in growing(pages[::-1] if descending else pages):
            if len(numbers) == 1:
                keys, places = self._cut(self._page(numbers[0]), first, end)
            else:
                keys, places = self._block(range(min(numbers), max(numbers) + 1))
                high = len(keys) if end is None else keys.searchsorted(end)
                cut = slice(keys.searchsorted(first), high)
                keys, places = keys[cut], places[cut]
            yield (keys[::-1], places[::-1]) if descending else (keys, places)

    @staticmethod
    def _cut(page: OrderedPage, first: bytes, end: bytes | None) -> OrderedEntries:
        """Return the entries of a stretch: only their keys are put together."""
        cut = page.packed.between(first, end)
        return page.packed.keys(cut), page.places[cut]

    def _page(self, page: int) -> OrderedPage:
        number = self._file.first_number + page
        found = self._cache.get(number)
        if found is None:
            start, end = self.foot.span(page)
            data = self._file.read(end - start, start)
            found = decode_page(data, str(self._file.path), self.foot, page)
            if end - start <= PAGE_BYTES:  # the cache counts pages
                self._cache.put(number, found)
        return found

    def _block(self, pages: range) -> OrderedEntries:
        """Return the entries of adjacent pages, which are read at once."""
        start = self.foot.span(pages[0])[0]
        data = memoryview(self._file.read(self.foot.span(pages[-1])[1] - start, start))
        found: list[OrderedEntries] = []
        for page in pages:
            first, end = self.foot.span(page)
            one = bytes(data[first - start : end - start])
            read = decode_page(one, str(self._file.path), self.foot, page)
            found.append((read.packed.keys(slice(None)), read.places))
        return joined(found)


def write_ordered(
    files: Files, root: Path, path: str, blocks: Iterable[OrderedEntries], *, parts: Iterable[int]
) -> tuple[KeyRun, InventoryFile]:
    """Write a run and sync its bytes, not its name; `blocks` ascend, from one to the next.

    Raises:
        OSError: The file system refuses.
    """
    salt, whole = secrets.randbits(64), xxhash.xxh3_64()
    ends, separators, size, entries = list[int](), list[bytes](), 0, 0
    last: bytes | None = None
    with new_run_file(files, root / path) as file:
        # Blocks of many pages: the last page of each is seldom full.
        large = gathered(filter(bytes_of, blocks), bytes_of, _BLOCK_BYTES)
        for keys, places in map(joined, large):
            done = ordered_run.encode_pages(keys, places, salt=salt, first=len(ends))
            file.pwrite(done.data, size)
            whole.update(done.data)
            ends += [size + end for end in done.ends]
            for low, high in zip(done.firsts, done.lasts, strict=True):
                separators.append(ordered_run.separator(last, low))
                last = high
            size, entries = size + len(done.data), entries + len(keys)
        tail, checksum = ordered_run.encode_foot(salt, entries, sorted(parts), ends, separators)
        file.pwrite(tail, size)
        whole.update(tail)
        file.sync()
    size += len(tail)
    run = KeyRun(path, size, checksum, entries, is_ordered=True)
    return run, InventoryFile(path, size, whole.hexdigest())


def bytes_of(entries: OrderedEntries) -> int:
    """Return how much memory entries take."""
    return entries[0].nbytes + entries[1].nbytes
