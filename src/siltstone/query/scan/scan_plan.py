"""Scan plan: a scan of one table at one seq, cut into tasks.

    base, history, attached    groups of parts of the pin, or ranges of a large part, and the
                               positions to leave out (above base: the few to read)
    memtables                  their live rows inline, in pieces of at most `IN_HAND_BYTES_MAX`
    few keys                   the rows of a filter that names few, or a short range, inline, if
                               one piece holds them

Like a scan before its first batch, the planner finds the rows that later levels hide.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.arguments import count_of
from siltstone.engine.commit.core import Core
from siltstone.engine.filter.filters import Filter, filter_of
from siltstone.engine.levels.attached import Attached
from siltstone.engine.levels.chunk import NOTHING
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.read.read_arguments import known_columns
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import PlainReader, Reader
from siltstone.errors import RequestError
from siltstone.formats.conversion.arrow_stream import packed
from siltstone.formats.manifest import Pin, Record, pins_of
from siltstone.query.scan.scan_task import PinnedRows, Positions, ScanTask
from siltstone.query.scan.stored_files import tables_of
from siltstone.storage.manifest.manifest_store import Lease
from siltstone.storage.tables.tables import PinnedTable

ROWS_MAX = 1 << 20
IN_HAND_BYTES_MAX = 8 << 20
RANGES_MAX = 64
"""Of one part: each range opens its file anew, so a range of few rows costs more than its rows."""


def plan(
    core: Core,
    reader: Reader,
    record: Record,
    *,
    table: str,
    seq: int,
    columns: Sequence[str] | None,
    filter: str | pc.Expression | None,  # noqa: A002 - the contract's name
    rows_max: int,
) -> list[ScanTask]:
    """Return the tasks of a scan, which together return each row once; none for an empty table.

    Args:
        core: The core of the store.
        reader: The table at `seq`.
        record: The record of the reader's view.
        rows_max: The maximum number of stored rows of a task, but a part of a pin is cut into at
            most `RANGES_MAX` ranges. With a filter it is never cut, because Lance looks for its
            rows: a task has one part at least.

    Raises:
        RequestError: A column is unknown, the filter is invalid, or `rows_max` is below 1.
    """
    count_of("rows_max", rows_max, 1)
    arrow = reader.table_schema.arrow
    known = known_columns(arrow, columns)
    shown = list(arrow.names) if known is None else known
    wanted = filter_of(filter, arrow)
    if wanted and wanted.counts_columns:
        raise RequestError(f"{filter} names columns by number; a task needs names: pc.field('id')")
    extra = sorted(set(wanted.columns) - set(shown)) if wanted else []
    fields = reader.table_schema.fields([*shown, *extra])
    planner = _ScanPlanner(core, table, seq, tuple(shown), filter, wanted, fields, rows_max)
    if isinstance(reader, PlainReader):
        return list(planner.plain(reader, record))
    assert isinstance(reader, KeyedReader)
    return list(planner.keyed(reader, record))


def files_of(reader: Reader, tasks: Iterable[ScanTask]) -> int:
    """Return how many files the tasks of a plan read.

    Args:
        reader: A reader of the view and the seq of the plan.
        tasks: The tasks, in any order.
    """
    starts = {table.pin.path: [first for first, _ in table.spans] for _, table in tables_of(reader)}
    found: set[tuple[str, int]] = set()
    for task in tasks:
        if isinstance(task.source, PinnedRows):
            path = task.source.pin.path
            low = bisect_right(starts[path], task.source.first) - 1
            high = bisect_left(starts[path], task.source.end)
            found.update((path, number) for number in range(low, high))
    return len(found)


class TaskFiles(msgspec.Struct, frozen=True):
    """How a task reads a pin: its names of the columns, and what keeps its files."""

    stored: tuple[str | None, ...]
    lease: object
    is_named: bool

    @classmethod
    def of_run(cls, run: HistoryRun, stored: tuple[str | None, ...], lease: object) -> TaskFiles:
        """Return the files of un-merged history; `lease` is that of the view."""
        return cls(stored, lease if run.lease is None else run.lease, run.lease is not None)

    def rows(
        self,
        pin: Pin,
        first: int,
        end: int,
        kept: Positions | None = None,
        dropped: Positions | None = None,
    ) -> PinnedRows:
        """Return the rows [first, end)."""
        records = numbers(self.lease)
        return PinnedRows(pin, first, end, kept, dropped, self.stored, records, self.is_named)


class _ScanPlanner(msgspec.Struct, frozen=True):
    core: Core
    table: str
    seq: int
    shown: tuple[str, ...]
    filter: str | pc.Expression | None
    wanted: Filter | None
    fields: pa.Schema
    rows_max: int

    def plain(self, reader: PlainReader, record: Record) -> Iterator[ScanTask]:
        opened = reader.table
        if opened is None:
            return
        pins = {pin.path for pin in pins_of(record)}
        files = TaskFiles(tuple(self.fields.names), reader.lease, opened.pin.path in pins)
        yield from self._pinned(opened, files, NOTHING, are_kept=False)

    def keyed(self, reader: KeyedReader, record: Record) -> Iterator[ScanTask]:
        shown = pa.schema([self.fields.field(name) for name in self.shown])
        few = None if self.wanted is None else self._few(reader, self.wanted)
        if few is not None:
            for piece, rows in in_hand(few):
                yield self._task(None, shown, piece, rows)
            return
        overlay, base = reader.overlay(), reader.base
        table_schema, names = reader.table_schema, self.fields.names
        if base is not None and base.rows:
            # A base of the past is found by the record that names it.
            is_named = isinstance(reader.levels.lease, tuple) or base.table.pin.path in {
                pin.path for pin in pins_of(record)
            }
            stored = table_schema.stored(names, base.table_schema)
            files = TaskFiles(stored, reader.levels.lease, is_named)
            yield from self._pinned(base.table, files, overlay.shadowed, are_kept=False)
        in_memory: list[pa.RecordBatch] = []
        for level in overlay.levels:
            run = level.source
            if isinstance(run, HistoryRun):  # un-merged, or a bulk commit that is in a frame alone
                files = TaskFiles.of_run(run, run.stored(table_schema, names), reader.levels.lease)
                positions = run.positions_of(level.ordinals)
                yield from self._pinned(run.table, files, positions, are_kept=True)
            else:
                batches = run.rows_kept(level.parts, level.kept, table_schema, names)
                in_memory += self._matching(batches)
        for piece, rows in in_hand(in_memory):
            yield self._task(None, shown, piece, rows)

    def _few(self, reader: KeyedReader, wanted: Filter) -> list[pa.RecordBatch] | None:
        """Return the rows of a filter that finds few by key; None: it does not, or they are long.

        A task for each part would read the whole part, to find none there.
        """
        found: list[pa.RecordBatch] = []
        nbytes = 0
        rows = reader.by_key(list(self.shown), wanted)
        for batch in () if rows is None else rows:
            nbytes += batch.nbytes
            if nbytes > IN_HAND_BYTES_MAX:
                return None
            found.append(batch)
        return None if rows is None else found

    def _pinned(
        self, opened: PinnedTable | Attached, files: TaskFiles, some: np.ndarray, *, are_kept: bool
    ) -> Iterator[ScanTask]:
        """Plan the rows at the positions `some` (ascending), or, unless `are_kept`, all others."""
        for first, end in groups(opened.spans, self.rows_max, is_cut=self.wanted is None):
            low, high = some.searchsorted((first, end)).tolist()
            rows = high - low if are_kept else end - first - (high - low)
            if rows:
                here = Positions.of(some[low:high] - first, end - first) if high > low else None
                kept, dropped = (here, None) if are_kept else (None, here)
                source = files.rows(opened.pin, first, end, kept, dropped)
                yield self._task(self.filter, self.fields, source, rows)

    def _task(
        self,
        wanted: str | pc.Expression | None,
        fields: pa.Schema,
        source: PinnedRows | bytes,
        rows: int,
    ) -> ScanTask:
        root, verify = str(self.core.root), self.core.verify
        return ScanTask(
            root, verify, self.table, self.seq, self.shown, wanted, fields, source, rows
        )

    def _matching(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = batch if self.wanted is None else self.wanted.keep(batch)
            if kept.num_rows:
                yield kept.select(list(self.shown))


def in_hand(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, int]]:
    """Yield rows as Arrow IPC streams of at most `IN_HAND_BYTES_MAX`, with their row counts."""
    for piece in _gathered(part for batch in batches for part in _halved(batch)):
        yield packed(piece[0].schema, piece), sum(batch.num_rows for batch in piece)


def numbers(lease: object) -> tuple[int, ...]:
    """Return the numbers of the records that a reader leases."""
    if isinstance(lease, tuple):
        return tuple(sorted({number for each in lease for number in numbers(each)}))
    return (lease.number,) if isinstance(lease, Lease) else ()


def groups(
    spans: Sequence[tuple[int, int]], rows_max: int, *, is_cut: bool = False
) -> Iterator[tuple[int, int]]:
    """Yield [first, end) of neighbouring parts that have at most `rows_max` rows together.

    `is_cut`: a part with more rows comes in equal ranges, `RANGES_MAX` at most; else alone.
    """
    first = end = 0
    for start, stop in spans:
        if stop - first > rows_max and end > first:
            yield first, end
            first = start
        end = stop
        if is_cut and end - first > rows_max:
            yield from _ranges(first, end, min(-(-(end - first) // rows_max), RANGES_MAX))
            first = end
    if end > first:
        yield first, end


def _ranges(first: int, end: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield [first, end) in `count` ranges of about one size."""
    bounds = [first + (end - first) * number // count for number in range(count + 1)]
    return itertools.pairwise(bounds)


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in slices of at most `IN_HAND_BYTES_MAX`, unless one row has more."""
    if batch.nbytes <= IN_HAND_BYTES_MAX or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _halved(batch.slice(0, half))
    yield from _halved(batch.slice(half))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    piece: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if piece and size + batch.nbytes > IN_HAND_BYTES_MAX:
            yield piece
            piece, size = [], 0
        piece.append(batch)
        size += batch.nbytes
    if piece:
        yield piece
