"""Scan plan: a scan of one table at one seq, cut into tasks.

    base, history, attached    groups of parts of the pin, and the positions to leave out (above
                               base: the few to read)
    memtables                  their live rows inline, in pieces of at most `IN_HAND_BYTES_MAX`

Like a scan before its first batch, the planner finds the rows that later levels hide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter.filters import Filter, filter_of
from siltstone.engine.levels.chunk import Slice
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.source import Source
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.readable import known_columns
from siltstone.engine.read.reader import PlainReader, Reader, plain_folder
from siltstone.errors import RequestError
from siltstone.formats.manifest import Record
from siltstone.formats.schema import history_name
from siltstone.maintenance.gc.sweep import pins_of
from siltstone.query.scan.scan_task import PinnedRows, Positions, ScanTask
from siltstone.storage.manifest.manifest_store import Lease
from siltstone.storage.tables.tables import PinnedTable

ROWS_MAX = 1 << 20
IN_HAND_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class TaskSite:
    """The location of the store, for the process that reads a task."""

    root: str
    verify: str


def plan(
    reader: Reader,
    record: Record,
    *,
    site: TaskSite,
    table: str,
    seq: int,
    columns: Sequence[str] | None,
    filter: str | pc.Expression | None,  # noqa: A002 - the contract's name
    rows_max: int,
) -> list[ScanTask]:
    """Return the tasks of a scan, which together return each row once; none for an empty table.

    Args:
        reader: The table at `seq`.
        record: The record of the reader's view.
        rows_max: The approximate number of stored rows of a task; a part of a file is never cut.

    Raises:
        RequestError: A column is unknown, the filter is invalid, or `rows_max` is below 1.
    """
    if type(rows_max) is not int or rows_max < 1:
        raise RequestError(f"rows_max must be an integer from 1; got {rows_max!r}")
    arrow = reader.table_schema.arrow
    known = known_columns(arrow, columns)
    shown = list(arrow.names) if known is None else known
    wanted = filter_of(filter, arrow)
    if wanted and wanted.counts_columns:
        raise RequestError(f"{filter} names columns by number; a task needs names: pc.field('id')")
    extra = sorted(set(wanted.columns) - set(shown)) if wanted else []
    fields = reader.table_schema.fields([*shown, *extra])
    planner = _ScanPlanner(site, table, seq, tuple(shown), filter, wanted, fields, rows_max)
    if isinstance(reader, PlainReader):
        return list(planner.plain(reader, record))
    assert isinstance(reader, KeyedReader)
    return list(planner.keyed(reader, record))


@dataclass(frozen=True, slots=True)
class _ScanPlanner:
    site: TaskSite
    table: str
    seq: int
    shown: tuple[str, ...]
    filter: str | pc.Expression | None
    wanted: Filter | None
    fields: pa.Schema
    rows_max: int

    def plain(self, reader: PlainReader, record: Record) -> Iterator[ScanTask]:
        if reader.table is None:
            return
        pins = {pin.path for pin in pins_of(record)}
        yield from self._all_but(
            reader.table,
            np.zeros(0, np.int64),
            tuple(self.fields.names),
            numbers(reader.lease),
            is_named=reader.table.pin.path in pins,
        )

    def keyed(self, reader: KeyedReader, record: Record) -> Iterator[ScanTask]:
        overlay, base = reader.overlay(), reader.base
        ids = {column.name: column.id for column in reader.table_schema.schema.columns}
        if base is not None and base.rows:
            pins = {pin.path for pin in pins_of(record)}
            yield from self._all_but(
                base.table,
                overlay.shadowed,
                tuple(base.table_schema.names.get(ids[name]) for name in self.fields.names),
                numbers(reader.lease),
                # A base of the past is found by the record that names it.
                is_named=isinstance(reader.lease, tuple) or base.table.pin.path in pins,
            )
        in_hand: list[pa.RecordBatch] = []
        for source, parts, ordinals in overlay.live:
            if isinstance(source, HistoryRun):
                yield from self._only(source, ordinals, ids, reader.lease)
            else:
                in_hand += self._in_memory(source, parts, ordinals, reader)
        yield from self._in_hand(in_hand)

    def _all_but(
        self,
        opened: PinnedTable,
        dropped: np.ndarray,
        stored: tuple[str | None, ...],
        records: tuple[int, ...],
        *,
        is_named: bool,
    ) -> Iterator[ScanTask]:
        for first, end in groups(opened.spans, self.rows_max):
            low, high = dropped.searchsorted((first, end))
            gone = Positions.of(dropped[low:high] - first, end - first) if high > low else None
            if high - low == end - first:
                continue
            pin = opened.pin
            yield self._task(
                PinnedRows(
                    plain_folder(pin), pin, first, end, None, gone, stored, records, is_named
                )
            )

    def _only(
        self, run: HistoryRun, ordinals: np.ndarray, ids: dict[str, int], lease: object
    ) -> Iterator[ScanTask]:
        """Plan the live rows of un-merged history, or of a bulk commit that is in a frame alone."""
        opened, positions = run.table, run.positions_of(ordinals)
        has = set(opened.schema.names)
        names = (history_name(ids[name]) for name in self.fields.names)
        stored = tuple(name if name in has else None for name in names)
        is_named = run.lease is not None
        records = numbers(run.lease if is_named else lease)
        pin = opened.pin
        for first, end in groups(opened.spans, self.rows_max):
            low, high = positions.searchsorted((first, end))
            if low < high:
                kept = Positions.of(positions[low:high] - first, end - first)
                yield self._task(
                    PinnedRows(
                        plain_folder(pin), pin, first, end, kept, None, stored, records, is_named
                    )
                )

    def _task(self, source: PinnedRows) -> ScanTask:
        return self._made(source, source.rows)

    def _made(self, source: PinnedRows | bytes, rows: int) -> ScanTask:
        fields = self.fields if isinstance(source, PinnedRows) else self._shown_fields()
        return ScanTask(
            self.site.root,
            self.site.verify,
            self.table,
            self.seq,
            self.shown,
            self.filter if isinstance(source, PinnedRows) else None,
            fields,
            source,
            rows,
        )

    def _shown_fields(self) -> pa.Schema:
        return pa.schema([self.fields.field(name) for name in self.shown])

    # rows in hand

    def _in_memory(
        self, source: Source, parts: Sequence[Slice], ordinals: np.ndarray, reader: KeyedReader
    ) -> Iterator[pa.RecordBatch]:
        for batch in source.rows_at(parts, ordinals, reader.table_schema, self.fields.names):
            kept = batch if self.wanted is None else self.wanted.keep(batch)
            if kept.num_rows:
                yield kept.select(list(self.shown))

    def _in_hand(self, batches: Sequence[pa.RecordBatch]) -> Iterator[ScanTask]:
        for piece, rows in in_hand(batches):
            yield self._made(piece, rows)


def in_hand(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[bytes, int]]:
    """Yield rows as Arrow IPC streams of at most `IN_HAND_BYTES_MAX`, with their row counts."""
    for piece in _packed(part for batch in batches for part in _halved(batch)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, piece[0].schema) as writer:
            for batch in piece:
                writer.write_batch(batch)
        yield sink.getvalue().to_pybytes(), sum(batch.num_rows for batch in piece)


def numbers(lease: object) -> tuple[int, ...]:
    """Return the numbers of the records that a reader leases."""
    if isinstance(lease, tuple):
        return tuple(sorted({number for each in lease for number in numbers(each)}))
    return (lease.number,) if isinstance(lease, Lease) else ()


def groups(spans: Sequence[tuple[int, int]], rows_max: int) -> Iterator[tuple[int, int]]:
    """Yield [first, end) of neighbouring parts that have at most `rows_max` rows together."""
    first = end = 0
    for start, stop in spans:
        if stop - first > rows_max and end > first:
            yield first, end
            first = start
        end = stop
    if end > first:
        yield first, end


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the batch in slices of at most `IN_HAND_BYTES_MAX`, unless one row has more."""
    if batch.nbytes <= IN_HAND_BYTES_MAX or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _halved(batch.slice(0, half))
    yield from _halved(batch.slice(half))


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
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
