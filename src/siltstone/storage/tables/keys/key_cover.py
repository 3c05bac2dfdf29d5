"""Key cover: the key runs of all bases of a store, and how a new pin gets those that it lacks.

`TableKeys.cover` writes runs for parts that have none, and merges runs by their living rows:

    90 30 20 25 24   the newest four of like size, and all before them that are: 90 99
    more than RUNS_MAX of them: the newest ones
    one of which less than half lives: by itself

Merged runs lack the entries of rows that the pin hides, and of parts that it does not have. Only
this pin and those that are made of it name such a run, and none of them shows a hidden row again.

A crash leaves runs that no pin names; a lost race leaves runs of parts that no pin has.
"""

from __future__ import annotations

import logging
import secrets
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np

from siltstone.errors import CorruptionError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.conversion.arrow_stream import gathered
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.key_run import (
    OFFSET_BITS,
    PIECE_ROWS,
    Entries,
    merged,
    merged_pieces,
    sorted_entries,
)
from siltstone.formats.keys import KeyCodec
from siltstone.formats.manifest import KeyRun, Pin
from siltstone.storage.files.files import Files, refusals
from siltstone.storage.tables.inventories import Inventories
from siltstone.storage.tables.keys.key_places import PinnedKeys, Serving
from siltstone.storage.tables.keys.key_runs import (
    OpenRun,
    PageCache,
    directory_of,
    joined,
    write_run,
)
from siltstone.storage.tables.keys.staged_keys import (
    KeySorter,
    StagedKeysError,
    Unit,
    entries_of,
    units_of,
)
from siltstone.storage.tables.tables import PinnedTable, TableReader
from siltstone.storage.tables.values import Span, StagedKeys

RUNS_MAX = 8
RUN_ROWS_MAX = 2 << 20
"""At most so many rows (a part at least) are in memory at once, 16 bytes each."""
_WIDTH = 4
_CACHE_BYTES = 32 << 20
_log = logging.getLogger(__name__)


class TableKeys:
    """The key runs of the bases of one store; threads may share it.

    Lock: `_lock` guards the table of open runs; it is never held over I/O.
    """

    def __init__(
        self,
        root: Path,
        files: Files,
        inventories: Inventories,
        reader: TableReader,
        *,
        token: Callable[[], str],
    ) -> None:
        """`token` gives names that were never used."""
        self._root, self._files, self._inventories = root, files, inventories
        self._reader, self._token, self._cache = reader, token, PageCache(_CACHE_BYTES)
        self._lock = threading.Lock()
        self._open: weakref.WeakValueDictionary[KeyRun, OpenRun] = weakref.WeakValueDictionary()

    def cached_bytes(self) -> int:
        """Return the approximate bytes of the pages in memory."""
        return self._cache.nbytes

    def bound(self, bytes_max: int) -> None:
        """Say how many bytes of pages may stay in memory; before threads share it."""
        self._cache = PageCache(bytes_max)

    def open(self, pin: Pin) -> PinnedKeys:
        """Return the key runs of a base.

        A run whose file is missing is left out, with a warning: a repair moves damaged ones away,
        and older records still name them.

        Raises:
            CorruptionError: The foot of a run is damaged.
        """
        return self.opened(self._reader.open(pin), pin.runs)

    def opened(self, table: PinnedTable, runs: Sequence[KeyRun]) -> PinnedKeys:
        """Return what runs say of a base."""
        return PinnedKeys(table, [run for each in runs if (run := self._run(each)) is not None])

    def new_secret(self) -> int:
        """Return what keys the codes of a new table's keys."""
        return secrets.randbits(64)

    def sorter(self, folder: str, codec: KeyCodec) -> KeySorter:
        """Return what stages the keys of rows that are written, in the folder of their job."""
        return KeySorter(codec, partial(self._write_staged, folder))

    def cover(self, pin: Pin, codec: KeyCodec, staged: Sequence[StagedKeys] = ()) -> Pin:
        """Return a base with runs for all its parts, `RUNS_MAX` at most: the same manifest.

        `staged` are keys of its rows, by their positions, which are then not read. None of the
        rows is hidden: who drops some (`engine.write.bulk.unique`) drops what is staged of them.

        A run that is found damaged is written again, with a warning. A base that cannot be read
        stays as it is: a vacuum may have deleted files that no record names yet, which the
        publisher finds out; damage is named when the rows are read.

        Raises:
            UnavailableError: The file system refuses; unused files are left.
        """
        spared: Pin | None = pin
        while spared is not None:
            try:
                return self._covered(spared, codec, staged)
            except CorruptionError as error:
                spared = self.spared(spared, error)
                if spared is None:
                    _log.warning("%s gets no key runs for now: %s", pin.path, error)
        return pin

    def spared(self, pin: Pin, error: CorruptionError) -> Pin | None:
        """Return a base without the key run that is damaged; None: another file is.

        For maintenance, which covers the base again; a reader names the damage instead.
        """
        kept = tuple(run for run in pin.runs if self._root / run.path != error.path)
        if kept == pin.runs:
            return None
        _log.warning("%s; it is written again from the keys of base", error)
        return msgspec.structs.replace(pin, runs=kept)

    def _covered(self, pin: Pin, codec: KeyCodec, staged: Sequence[StagedKeys]) -> Pin:
        table, keys = self._reader.open(pin), self.open(pin)
        cover = _Cover(self, table, codec, staged, self._write, {})
        cross(Failpoint.KEYS_BEFORE_WRITE)
        runs = [each.run.run for each in reversed(keys.newest_first)]
        runs = cover.few([*runs, *cover.fresh(keys)])
        if tuple(runs) == pin.runs:
            return pin
        added = cover.added(runs)
        if added:
            with refusals(f"{self._root / directory_of(pin.folder)} cannot be synced"):
                self._files.sync_dir(self._root / directory_of(pin.folder))
        cross(Failpoint.KEYS_AFTER_WRITE)
        kept = [run.path for run in runs]
        gone = {run.path for run in pin.runs}.difference(kept)
        with refusals(f"the inventory of {self._root / pin.path} cannot be written"):
            living = chain(kept, self._living(pin, gone))
            name = self._inventories.add(pin.inventory, added, living)
        return msgspec.structs.replace(pin, inventory=name, runs=tuple(runs))

    def without(self, pin: Pin, paths: Collection[str]) -> Pin:
        """Return a base without the runs at some paths; the parts are uncovered."""
        runs = tuple(run for run in pin.runs if run.path not in paths)
        if runs == pin.runs:
            return pin
        with refusals(f"the inventory of {self._root / pin.path} cannot be written"):
            name = self._inventories.add(pin.inventory, (), self._living(pin, paths))
        return msgspec.structs.replace(pin, inventory=name, runs=runs)

    def _living(self, pin: Pin, gone: Collection[str]) -> Iterator[str]:
        """Yield the files of a pin; it costs nothing until a chain of inventories is folded."""
        yield from (file.path for file in self._reader.files(pin) if file.path not in gone)

    def _run(self, run: KeyRun) -> OpenRun | None:
        with self._lock:
            found = self._open.get(run)
        if found is None:
            if not self._files.exists(self._root / run.path):
                _log.warning("%s is missing: its rows are found by the keys themselves", run.path)
                return None
            found = OpenRun(self._files, self._root, run, self._cache)
            with self._lock:
                found = self._open.setdefault(run, found)
        return found

    def opened_staged(self, run: KeyRun) -> OpenRun:
        """Return a file of staged keys.

        Raises:
            CorruptionError, UnavailableError: It is missing or damaged, or cannot be read.
        """
        return OpenRun(self._files, self._root, run, self._cache)

    def _write_staged(self, folder: str, blocks: Iterable[Entries]) -> KeyRun:
        path = f"{folder}/{self._token()}.run"
        run, _ = write_run(self._files, self._root, path, blocks, parts=(), is_synced=False)
        return run

    def _write(
        self, folder: str, blocks: Iterator[Entries], parts: Sequence[int]
    ) -> tuple[KeyRun, InventoryFile]:
        directory = directory_of(folder)
        path = f"{directory}/{self._token()}.run"
        with refusals(f"{self._root / path} cannot be written"):
            self._files.mkdir(self._root / directory)
            return write_run(self._files, self._root, path, blocks, parts=parts)


Write = Callable[[str, "Iterator[Entries]", "Sequence[int]"], tuple[KeyRun, InventoryFile]]


class _Cover(msgspec.Struct, frozen=True):
    """The new runs of one pin; `written` are their files, also of those merged since."""

    keys: TableKeys
    table: PinnedTable
    codec: KeyCodec
    staged: Sequence[StagedKeys]
    write: Write
    written: dict[str, InventoryFile]

    def added(self, runs: Sequence[KeyRun]) -> list[InventoryFile]:
        """Return the files of those of some runs that are new."""
        return [self.written[run.path] for run in runs if run.path in self.written]

    def fresh(self, keys: PinnedKeys) -> Iterator[KeyRun]:
        """Write runs for the parts that have none."""
        group: list[Unit] = []
        rows = 0
        for unit in units_of(keys.uncovered, self.staged):
            if group and rows + unit.rows > RUN_ROWS_MAX:
                yield self._of(group)
                group, rows = [], 0
            group.append(unit)
            rows += unit.rows
        if group:
            yield self._of(group)

    def few(self, runs: list[KeyRun]) -> list[KeyRun]:
        """Merge runs until they are few and mostly of living rows."""
        while True:
            keys = self.keys.opened(self.table, runs)
            serving = [*reversed(keys.newest_first)]
            due = _due([self._sizes(each) for each in serving])
            if due is None:
                return runs
            some = serving[slice(*due)]
            parts = [part for each in some for part in each.starts]
            made = [self._put(merged([keys.living(e) for e in some]), parts)] if parts else []
            runs = [*runs[: due[0]], *made, *runs[due[1] :]]

    def _sizes(self, serving: Serving) -> tuple[int, int]:
        """Return how many rows of the parts of a run live (-1: it has none), and its entries."""
        spans, entries = [self._spans[part] for part in serving.starts], serving.run.run.entries
        if not spans:
            return -1, entries
        if not self.table.pin.hidden:
            return sum(end - first for first, end in spans), entries
        return sum(int(self.table.live.bools(*span).sum()) for span in spans), entries

    @property
    def _spans(self) -> dict[int, Span]:
        numbers = (part.number for part in self.table.part_ids)
        return dict(zip(numbers, self.table.spans, strict=True))

    def _of(self, units: Sequence[Unit]) -> KeyRun:
        """Write a run for parts, from their staged keys or from the keys of their rows."""
        parts = [part for unit in units for part in unit.spans]
        try:
            return self._put(self._sorted(units), parts)
        except StagedKeysError as error:
            _log.warning("%s; the keys are read from the rows", error)
            return self._put(self._sorted([replace(unit, keys=None) for unit in units]), parts)

    def _sorted(self, units: Sequence[Unit]) -> Iterator[Entries]:
        read = [part for unit in units if unit.keys is None for part in unit.spans]
        unsorted = gathered(self._entries(read), lambda entries: len(entries[0]), PIECE_ROWS)
        pieces = [sorted_entries(*joined(piece)) for piece in unsorted]
        staged = [entries_of(unit, self.keys.opened_staged) for unit in units if unit.keys]
        return merged([merged_pieces(pieces), *staged]) if staged else merged_pieces(pieces)

    def _entries(self, parts: Sequence[int]) -> Iterator[Entries]:
        for part in parts:
            span, offset = self._spans[part], 0
            for batch in self.table.scan(list(self.codec.names), within=span, with_hidden=True):
                codes = self.codec.codes(batch)
                offsets = np.arange(offset, offset + len(codes), dtype=np.uint64)
                offset += len(codes)
                if self.table.pin.hidden:
                    live = self.table.live.bools(span[0] + offset - len(codes), span[0] + offset)
                    codes, offsets = codes[live], offsets[live]
                yield codes, offsets | np.uint64(part << OFFSET_BITS)

    def _put(self, blocks: Iterator[Entries], parts: Sequence[int]) -> KeyRun:
        run, file = self.write(self.table.pin.folder, blocks, parts)
        self.written[run.path] = file
        return run


def _due(sizes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the [first, end) of the runs, oldest first, to merge into one; None if there is none.

    `sizes` are their living rows and their entries.
    """
    rows = [max(1, living) for living, _ in sizes]
    for end in range(len(rows), _WIDTH - 1, -1):
        first, low, high = end, rows[end - 1], rows[end - 1]
        while first and max(high, rows[first - 1]) <= _WIDTH * min(low, rows[first - 1]):
            first -= 1
            low, high = min(low, rows[first]), max(high, rows[first])
        if end - first >= _WIDTH:
            return first, end
    if len(rows) > RUNS_MAX:
        return RUNS_MAX - 1, len(rows)
    return next(((at, at + 1) for at, (n, whole) in enumerate(sizes) if 2 * n < whole), None)
