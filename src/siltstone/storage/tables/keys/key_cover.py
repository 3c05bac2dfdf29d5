"""Key cover: the key runs of all bases of a store, and how a new pin gets those that it lacks.

`TableKeys.cover` writes runs for parts that have none, and merges runs by their living rows:

    90 30 20 25 24   the newest four of like size, and all before them that are: 90 99
    more than RUNS_MAX of them: the newest ones
    one of which less than half lives: by itself

Merged runs lack the entries of rows that the pin hides, and of parts that it does not have. Only
this pin and those that are made of it name such a run, and none of them shows a hidden row again.

Where codes are hashes, ordered runs cover the parts of a base, too, by themselves and by the same
rules (ADR 103). Loads get theirs when a merge makes them parts of base.

A crash leaves runs that no pin names; a lost race leaves runs of parts that no pin has.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.errors import CorruptionError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.conversion.arrow_stream import gathered
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.key_run import (
    OFFSET_BITS,
    PIECE_ROWS,
    Block,
    Entries,
    joined,
    merged,
    merged_pieces,
    sorted_entries,
)
from siltstone.formats.keys import KeyCodec
from siltstone.formats.manifest import KeyRun, Pin
from siltstone.formats.order.key_bytes import ByteKeys
from siltstone.formats.order.ordered_run import OrderedEntries
from siltstone.storage.files.files import Files, discard, refusals
from siltstone.storage.tables.inventories import Inventories
from siltstone.storage.tables.keys.key_places import AnyRun, Covering, PinnedKeys, Serving
from siltstone.storage.tables.keys.key_runs import OpenRun, write_run
from siltstone.storage.tables.keys.ordered_runs import OpenOrdered, bytes_of, write_ordered
from siltstone.storage.tables.keys.run_file import PageCache, directory_of
from siltstone.storage.tables.keys.staged_keys import (
    KeySorter,
    StagedKeysError,
    Unit,
    entries_of,
    units_of,
)
from siltstone.storage.tables.tables import PinnedTable, TableReader
from siltstone.storage.tables.values import Span, StagedKeys
from siltstone.telemetry.notices import NoticeLog

RUNS_MAX = 8
RUN_ROWS_MAX = 2 << 20
"""At most so many rows (a part at least) are in memory at once, 16 bytes each."""
PIECE_BYTES, SORTED_BYTES_MAX = 16 << 20, 128 << 20
"""Whole keys are sorted in such pieces; so many bytes of them are in memory at once."""
_WIDTH = 4
_CACHE_BYTES = 32 << 20
_log = NoticeLog(__name__)


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
        self._open: weakref.WeakValueDictionary[KeyRun, AnyRun] = weakref.WeakValueDictionary()

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

    def cover(
        self,
        pin: Pin,
        codec: KeyCodec,
        staged: Sequence[StagedKeys] = (),
        *,
        in_order: bool = False,
    ) -> Pin:
        """Return a base with runs for all its parts, `RUNS_MAX` at most: the same manifest.

        `staged` are keys of its rows, by their positions, which are then not read. None of the
        rows is hidden: who drops some (`engine.write.bulk.unique`) drops what is staged of them.

        `in_order`: with ordered runs, too, if it is keys whose codes have no order.

        A run that is found damaged is written again, with a warning. A base that cannot be read
        stays as it is: a vacuum may have deleted files that no record names yet, which the
        publisher finds out; damage is named when the rows are read.

        Raises:
            UnavailableError: The file system refuses; unused files are left.
        """
        spared: Pin | None = pin
        while spared is not None:
            try:
                return self._covered(spared, codec, staged, in_order=in_order and not codec.exact)
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

    def _covered(
        self, pin: Pin, codec: KeyCodec, staged: Sequence[StagedKeys], *, in_order: bool
    ) -> Pin:
        table, keys = self._reader.open(pin), self.open(pin)
        written: dict[str, InventoryFile] = {}
        cross(Failpoint.KEYS_BEFORE_WRITE)
        by_code = _Cover(self, table, codec, staged, written, is_ordered=False)
        runs = by_code.whole(keys)
        if in_order:
            runs += _Cover(self, table, codec, (), written, is_ordered=True).whole(keys)
        else:
            runs += [run for run in pin.runs if run.is_ordered]
        if tuple(runs) == pin.runs:
            return pin
        added = [written[run.path] for run in runs if run.path in written]
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

    def _run(self, run: KeyRun) -> AnyRun | None:
        with self._lock:
            found = self._open.get(run)
        if found is None:
            if not self._files.exists(self._root / run.path):
                _log.warning("%s is missing: its rows are found by the keys themselves", run.path)
                return None
            kind = OpenOrdered if run.is_ordered else OpenRun
            found = kind(self._files, self._root, run, self._cache)
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

    def written(
        self, folder: str, blocks: Iterator[Block[Any]], parts: Sequence[int], *, is_ordered: bool
    ) -> tuple[KeyRun, InventoryFile]:
        """Write entries as a run of some parts of a dataset; it is synced, and its name is not."""
        directory = directory_of(folder)
        path = f"{directory}/{self._token()}.run"
        write = write_ordered if is_ordered else write_run
        with refusals(f"{self._root / path} cannot be written"):
            self._files.mkdir(self._root / directory)
            return write(self._files, self._root, path, blocks, parts=parts)

    @contextlib.contextmanager
    def spilled(self, folder: str) -> Generator[Callable[[Iterator[Block[Any]]], OpenOrdered]]:
        """Return what writes sorted entries that do not fit into memory, until the end."""
        made: list[OpenOrdered] = []

        def spill(blocks: Iterator[Block[Any]]) -> OpenOrdered:
            run, _ = self.written(folder, blocks, (), is_ordered=True)
            made.append(OpenOrdered(self._files, self._root, run, self._cache))
            return made[-1]

        try:
            yield spill
        finally:
            for each in made:
                discard(self._files, self._root / each.run.path)


class _Cover(msgspec.Struct, frozen=True):
    """The new runs of one kind; `written` are their files, also of those merged since."""

    keys: TableKeys
    table: PinnedTable
    codec: KeyCodec
    staged: Sequence[StagedKeys]
    written: dict[str, InventoryFile]
    is_ordered: bool

    def whole(self, keys: PinnedKeys) -> list[KeyRun]:
        """Return runs that cover all parts, `RUNS_MAX` at most, oldest first."""
        found = self._of_kind(keys)
        known = [each.run.run for each in reversed(found.newest_first)]
        return self.few([*known, *self.fresh(found.uncovered)])

    def _of_kind(self, keys: PinnedKeys) -> Covering[Any]:
        return keys.in_order if self.is_ordered else keys.by_code

    def fresh(self, uncovered: Mapping[int, Span]) -> Iterator[KeyRun]:
        """Write runs for the parts that have none."""
        group: list[Unit] = []
        rows = 0
        for unit in units_of(uncovered, self.staged):
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
            serving = [*reversed(self._of_kind(keys).newest_first)]
            due = _due([self._sizes(each) for each in serving])
            if due is None:
                return runs
            some = serving[slice(*due)]
            parts = [part for each in some for part in each.starts]
            made = [self._put(merged([keys.living(e) for e in some]), parts)] if parts else []
            runs = [*runs[: due[0]], *made, *runs[due[1] :]]

    def _sizes(self, serving: Serving[Any]) -> tuple[int, int]:
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

    def _sorted(self, units: Sequence[Unit]) -> Iterator[Block[Any]]:
        if self.is_ordered:
            return self._sorted_keys([part for unit in units for part in unit.spans])
        read = [part for unit in units if unit.keys is None for part in unit.spans]
        unsorted = gathered(self._entries(read), lambda entries: len(entries[0]), PIECE_ROWS)
        pieces = [sorted_entries(*joined(piece)) for piece in unsorted]
        staged = [entries_of(unit, self.keys.opened_staged) for unit in units if unit.keys]
        return merged([merged_pieces(pieces), *staged]) if staged else merged_pieces(pieces)

    def _sorted_keys(self, parts: Sequence[int]) -> Iterator[OrderedEntries]:
        """Yield the keys of parts, sorted in pieces; those that do not fit wait in files."""
        held: list[OrderedEntries] = []
        away: list[Iterator[OrderedEntries]] = []
        size = 0
        with self.keys.spilled(self.table.pin.folder) as spill:
            for some in gathered(self._entries(parts), bytes_of, PIECE_BYTES):
                held.append(sorted_keys(*joined(some)))
                size += bytes_of(held[-1])
                if size >= SORTED_BYTES_MAX:
                    away.append(spill(merged_pieces(held)).entries())
                    held, size = [], 0
            yield from merged([merged_pieces(held), *away]) if away else merged_pieces(held)

    def _entries(self, parts: Sequence[int]) -> Iterator[Block[Any]]:
        for part in parts:
            span, offset = self._spans[part], 0
            for batch in self._keys_of(span):
                ranks = self._ranks(batch)
                offsets = np.arange(offset, offset + len(ranks), dtype=np.uint64)
                offset += len(ranks)
                if self.table.pin.hidden:
                    live = self.table.live.bools(span[0] + offset - len(ranks), span[0] + offset)
                    ranks, offsets = ranks[live], offsets[live]
                yield ranks, offsets | np.uint64(part << OFFSET_BITS)

    def _keys_of(self, span: Span) -> Iterator[pa.RecordBatch]:
        for batch in self.table.scan(list(self.codec.names), within=span, with_hidden=True):
            yield from _in_slices(batch)

    def _ranks(self, batch: pa.RecordBatch) -> Any:
        return self.codec.ordered_of(batch) if self.is_ordered else self.codec.codes(batch)

    def _put(self, blocks: Iterator[Block[Any]], parts: Sequence[int]) -> KeyRun:
        folder = self.table.pin.folder
        run, file = self.keys.written(folder, blocks, parts, is_ordered=self.is_ordered)
        self.written[run.path] = file
        return run


def sorted_keys(keys: ByteKeys, places: np.ndarray) -> OrderedEntries:
    """Return entries in the order of their keys."""
    order = keys.argsort()
    return keys[order], places[order]


def _in_slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield keys in slices: those of one are put together in one array, of 2 GiB at most."""
    count = max(1, min(batch.num_rows, batch.nbytes // PIECE_BYTES))
    rows = -(-batch.num_rows // count)
    for at in range(0, batch.num_rows, max(1, rows)):
        yield batch.slice(at, rows)


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
