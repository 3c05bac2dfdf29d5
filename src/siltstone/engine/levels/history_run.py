"""History run: the un-merged part of a table's history, read from Lance.

It covers the seqs (low, high] of one pinned history. An index in memory has its keys, seqs and ops
in row order: the index of the flushed memtables, or one that is read once. The rows themselves stay
in Lance; reads take them by position (few) or scan them (many). Row order in history is seq order,
and the positions of a pin never change.

After `_MISSES_MIN` rows, or at the third scan, all rows are held in memory, if they fit the room
that reads have: a store that was opened, or joined, then reads what was flushed before as fast as
who flushed it.

An attached load that has key runs needs no index in memory: its rows are found by the runs, and are
at the positions 0, 1, ...

Lock: one, held while the index or the rows are loaded, so that they are loaded once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema, aligned, table_schema_of
from siltstone.engine.levels.attached import Attached
from siltstone.engine.levels.chunk import (
    NOTHING,
    Chunk,
    IndexedSlice,
    Slice,
    batch_of,
    between,
    find_version,
    locate,
    rows_at,
    rows_kept,
    run_of,
)
from siltstone.engine.levels.kept_batches import batches_kept
from siltstone.engine.levels.load_keys import LoadKeys, LoadSlice, Part
from siltstone.engine.levels.memtable import Found
from siltstone.engine.levels.origin import Origin
from siltstone.formats.keys import Codes, Key
from siltstone.formats.log.group import DELETE
from siltstone.formats.manifest import Column, Schema
from siltstone.formats.schema import OP_COLUMN, SEQ_COLUMN, history_name
from siltstone.formats.types.widening import in_type
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import POSITION
from siltstone.units import require

_INDEX_ROW_BYTES = 64
_TAKE_ROWS_MAX = 2_000
_TAKE_SHARE_MAX = 0.02
_MISSES_MIN, _MISSES_A_SCAN = 64, 22


class HistoryRun:
    """Row versions with low < _seq <= high (see the module)."""

    def __init__(
        self,
        opened: Callable[[], PinnedTable | Attached],
        schema: Schema,
        low: int,
        high: int,
        *,
        lease: object = None,
        known: Sequence[IndexedSlice] = (),
        held: Sequence[Chunk] = (),
        bytes_left: Callable[[], int] = lambda: 0,
    ) -> None:
        """Open lazily: `opened` is asked once, at the first read; runs are made under locks.

        `lease` is whatever keeps the pin's files alive, kept as long as this. `known` is the index
        of these rows, and `held` the rows, if they are in memory already (see `known_of`,
        `held_of`). `bytes_left`: how many bytes rows may be to be held.
        """
        self.low, self.high = low, high
        self.first_seq, self.last_seq = low + 1, high  # as the seqs of rows may be
        self._opened: Callable[[], PinnedTable | Attached] = functools.cache(opened)
        self._table_schema = table_schema_of(schema)
        self.lease = lease
        self._lock = threading.Lock()
        self._known = tuple(known)
        self._index: tuple[tuple[IndexedSlice, ...], np.ndarray] | None = None
        self._rows: int | None = sum(item.part.rows for item in known) if known else None
        self.held, self._bytes_left, self._misses = tuple(held), bytes_left, 0

    def through(self, opened: Callable[[], PinnedTable | Attached]) -> HistoryRun:
        """Return the same row versions, opened by another storage."""
        return HistoryRun(opened, self._table_schema.schema, self.low, self.high)

    @property
    def table(self) -> PinnedTable | Attached:
        """The pinned dataset."""
        return self._opened()

    @functools.cached_property
    def _slice(self) -> LoadSlice | None:
        """All its rows, if they are a load with key runs; None: an index in memory has them.

        Raises:
            CorruptionError: The foot of a key run is damaged.
        """
        table = self.table
        runs = table.runs if isinstance(table, Attached) else None
        if not isinstance(table, Attached) or runs is None:
            return None
        # The same when a record names it, not a frame.
        origin = Origin.named((table.seq, table.pin.path))
        return LoadSlice(origin, table.rows, LoadKeys(table, self._table_schema, runs))

    @property
    def rows(self) -> int:
        """The number of row versions, counted once from the seqs."""
        if self._rows is None and isinstance(self.table, Attached):
            self._rows = self.table.rows
        if self._rows is None:
            self._rows = sum(batch.num_rows for batch in self.scan([]))
        return self._rows

    @property
    def nbytes(self) -> int:
        """The bytes of the index in memory (0 until it is loaded)."""
        known, positions = self._index or (self._known, NOTHING)
        return sum(item.nbytes for item in known) + positions.nbytes

    @property
    def indexed(self) -> tuple[IndexedSlice, ...]:
        """The index, if it is in memory."""
        return self._known if self._index is None else self._index[0]

    def _loaded(self) -> tuple[tuple[IndexedSlice, ...], np.ndarray]:
        """Return the index, and the position of each row in the pin."""
        if self._index is None:
            with self._lock:
                if self._index is None:
                    self._index = self._placed() or self._load()
                    self._known = ()
        return self._index

    def _placed(self) -> tuple[tuple[IndexedSlice, ...], np.ndarray] | None:
        """Return the known index, if the pin ends with its rows: its neighbours' seqs tell."""
        if not self._known:
            return None
        rows, table = self.rows, self.table
        start = table.rows - rows
        if start < 0:
            return None
        at = np.array([n for n in (start - 1, start, table.rows - 1) if n >= 0])
        seqs = table.take(at, [SEQ_COLUMN]).column(0).to_pylist()
        first, last = self._known[0].part.chunks[0], self._known[-1].part.chunks[-1]
        if seqs[-2:] != [int(first.seqs[0]), int(last.seqs[-1])] or seqs[:-2] > [self.low]:
            return None
        return self._known, np.arange(start, table.rows)

    def _load(self) -> tuple[tuple[IndexedSlice, ...], np.ndarray]:
        codec = self._table_schema.codec
        columns = [history_name(column_id) for column_id in self._table_schema.schema.key]
        parts = list(self.scan([*columns, OP_COLUMN], with_positions=True))
        whole = pa.Table.from_batches(parts).combine_chunks().to_batches() if parts else []
        if not whole:
            return (), NOTHING
        rows = whole[0]
        keys = pa.RecordBatch.from_arrays(
            [rows.column(name) for name in columns], names=list(codec.names)
        )
        codes = codec.codes(keys)
        chunk = Chunk(
            0,
            keys,
            self._table_schema,
            codes,
            rows.column(SEQ_COLUMN).to_numpy(),
            rows.column(OP_COLUMN).to_numpy(),
        )
        part = Slice(Origin(), (chunk,), len(codes))
        return (IndexedSlice(part, (run_of(codes, 0),)),), rows.column(POSITION).to_numpy()

    def above(self, seq: int) -> HistoryRun:
        """Return the run of the rows with a seq > `seq`, below `high`: all others are in base now.

        Of the index in memory it keeps the slices of these rows, if none has others too.
        """
        require(seq < self.high, f"history up to seq {self.high} has nothing above {seq}")
        if seq <= self.low:
            return self
        known, positions = self._index or (self._known, None)
        kept = _behind(known, seq)
        held = held_of((self,), seq, self.high) if kept else ()
        run = HistoryRun(
            self._opened, self._table_schema.schema, seq, self.high,
            lease=self.lease, known=kept, held=held, bytes_left=self._bytes_left,
        )  # fmt: skip
        if positions is not None and run._rows is not None:
            run._index = kept, positions[len(positions) - run._rows :].copy()
        return run

    # the rows in memory

    @property
    def held_bytes(self) -> int:
        """The bytes of its rows in memory."""
        return sum(chunk.batch.nbytes for chunk in self.held)

    @property
    def is_at_hand(self) -> bool:
        """Whether `find` would read no file."""
        return self._index is not None and bool(self.held)

    def _in_memory(self, worth: int = 1) -> tuple[Chunk, ...]:
        """Return all rows in the order of their ordinals; nothing: they are not worth it yet.

        `worth`: for how many single rows a read counts.
        """
        if not self.held and self._misses <= _MISSES_MIN:
            self._misses += worth
            if self._misses > _MISSES_MIN:
                with self._lock:
                    self.held = self.held or self._hold()
        return self.held

    def _hold(self) -> tuple[Chunk, ...]:
        left, found = self._bytes_left(), list[Chunk]()
        for chunk in self.chunks_upto(self.high):
            left -= chunk.batch.nbytes
            if left < 0:
                return ()
            found.append(chunk)
        return tuple(found)

    def scan(
        self, columns: Sequence[str], *, with_positions: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the run, in order, with `_seq` behind the columns."""
        wanted = [*columns, SEQ_COLUMN]
        for batch in self.table.scan(wanted, seqs=(self.low, self.high), positions=with_positions):
            seqs = batch.column(SEQ_COLUMN).to_numpy()
            inside = (seqs > self.low) & (seqs <= self.high)
            if inside.all():
                yield batch
            elif inside.any():
                yield batch.filter(pa.array(inside))

    def codes_between(self, after: int, seq: int) -> Iterator[tuple[Codes, np.ndarray]]:
        """Yield the codes of the rows with after < seq <= `seq`, and the seq of each."""
        load = self._slice
        if load is not None:
            if after < self.high <= seq:  # all its rows have one seq
                for codes, _ in load.keys.blocks():
                    yield codes, np.full(len(codes), self.high)
            return
        for item in self._loaded()[0]:
            for chunk in item.part.chunks:
                found = between(chunk, after, seq)
                yield found.codes, found.seqs

    def find(self, key: Key, seq: int) -> Found | None:
        """Return the newest version of `key` with a seq <= `seq`, None if there is none here."""
        load = self._slice
        if load is not None:
            position = load.keys.find(key) if seq >= self.high else None
            return None if position is None else self._taken(position, self.high)
        known, positions = self._loaded()
        code = self._table_schema.codec.code(key)
        start = len(positions)
        for item in reversed(known):
            start -= item.part.rows
            version = find_version(item.part.chunks, item.runs, code, key, seq)
            if version is not None:
                chunk, offset = version
                return self._found(chunk, offset, start + chunk.start + offset, positions)
        return None

    def _found(self, chunk: Chunk, offset: int, ordinal: int, positions: np.ndarray) -> Found:
        written = chunk.seqs.item(offset)
        if chunk.ops.item(offset) == DELETE:
            return Found(None, self._table_schema, written)
        held = self._in_memory()
        if not held:
            return self._taken(positions.item(ordinal), written)
        rows, place = locate(held, ordinal)
        return Found(rows.row_at(place), rows.table_schema, written)

    def _taken(self, position: int, written: int) -> Found:
        schema, columns = self._table_schema, self._columns()
        taken = self.table.take(np.array([position]), [history_name(c.id) for c in columns])
        (row,) = self._typed(taken.combine_chunks().to_batches()[0], columns).to_pylist()
        return Found({name: row.get(name) for name in schema.arrow.names}, schema, written)

    def parts(self, seq: int) -> tuple[Part, ...]:
        """Return the rows with a seq <= `seq`: keys, seqs and ops, or a whole load."""
        load = self._slice
        if load is not None:
            return (load,) if seq >= self.high else ()
        known, _ = self._loaded()
        if seq >= self.high:
            return tuple(item.part for item in known)
        return tuple(item.part.upto(seq) for item in known)

    def positions_of(self, ordinals: np.ndarray) -> np.ndarray:
        """Return the positions, in the pin, of the rows at `ordinals`."""
        return ordinals if self._slice is not None else self._loaded()[1][ordinals]

    def rows_kept(
        self,
        parts: Sequence[Part],
        kept: pa.BooleanArray,
        table_schema: TableSchema,
        columns: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `parts` with a bit in `kept`, in seq order."""
        del parts  # the bits alone say which rows: all of them are in one pin
        count = kept.true_count
        if not count:
            return
        held = () if self._slice is not None else self._in_memory(_MISSES_A_SCAN)
        if held:
            yield from rows_kept(_first(held, len(kept)), kept, table_schema, columns)
            return
        names = self.stored(table_schema, columns)
        stored = [name for name in names if name is not None]
        if not stored or are_few(count, len(kept)):
            ordinals = np.flatnonzero(kept.to_numpy(zero_copy_only=False))
            yield from self.rows_at((), ordinals, table_schema, columns)
            return
        fields = table_schema.fields(columns)
        for batch in batches_kept(self.scan(stored), kept):
            yield batch_of(aligned(batch, names, fields), fields, batch.num_rows)

    def rows_at(
        self,
        parts: Sequence[Part],
        ordinals: np.ndarray,
        table_schema: TableSchema,
        columns: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `parts` at some ordinals, ascending."""
        del parts  # as in `rows_kept`
        if self.held:
            yield from rows_at(self.held, ordinals, table_schema, columns)
            return
        names = self.stored(table_schema, columns)
        stored = [name for name in names if name is not None]
        batches = [batch_of([], pa.schema([]), len(ordinals))]
        if stored:
            taken = self.table.take(self.positions_of(ordinals), stored)
            batches = taken.combine_chunks().to_batches()
        fields = table_schema.fields(columns)
        for batch in batches:
            yield batch_of(aligned(batch, names, fields), fields, batch.num_rows)

    def stored(self, table_schema: TableSchema, columns: Iterable[str]) -> tuple[str | None, ...]:
        """Return the pin's names of `columns`; None: it lacks the column."""
        has = set(self.table.schema.names)
        names = (history_name(table_schema.ids[name]) for name in columns)
        return tuple(name if name in has else None for name in names)

    def _typed(self, rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
        """Return columns of the pin in the types of the schema, by its names."""
        kinds = ((c, self._table_schema.arrow.field(c.name).type) for c in columns)
        arrays = [in_type(rows.column(history_name(c.id)), kind) for c, kind in kinds]
        return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in columns])

    def _columns(self) -> list[Column]:
        has = set(self.table.schema.names)
        return [c for c in self._table_schema.schema.columns if history_name(c.id) in has]

    def chunks_upto(self, seq: int) -> Iterator[Chunk]:
        """Yield every row version as chunks in seq order; the caller masks by `seqs`."""
        table_schema = self._table_schema
        columns = self._columns()
        start = 0
        for batch in self.scan([*(history_name(c.id) for c in columns), OP_COLUMN]):
            seqs = batch.column(SEQ_COLUMN).to_numpy()
            if seqs[0] > seq:
                break
            rows, ops = self._typed(batch, columns), batch.column(OP_COLUMN).to_numpy()
            yield Chunk(start, rows, table_schema, table_schema.codec.codes(rows), seqs, ops)
            start += batch.num_rows


def are_few(count: int, of: int) -> bool:
    """Return whether rows are read faster by their positions than by a scan."""
    return count <= max(_TAKE_ROWS_MAX, _TAKE_SHARE_MAX * of)


def _first(chunks: Sequence[Chunk], rows: int) -> list[Chunk]:
    """Return the chunks of the first rows."""
    return [
        chunk.cut(0, min(rows, chunk.end) - chunk.start) for chunk in chunks if chunk.start < rows
    ]


def held_of(runs: Sequence[HistoryRun], low: int, high: int) -> tuple[Chunk, ...]:
    """Return the rows from above `low` to `high` of adjacent runs that become one.

    None if one of them does not hold its rows, or if most of them are not asked for: they would
    stay in memory with the others.
    """
    if not all(run.held for run in runs):
        return ()
    found, start = list[Chunk](), 0
    for chunk in (between(chunk, low, high) for run in runs for chunk in run.held):
        if len(chunk.codes):
            found.append(chunk.moved(start))
            start = found[-1].end
    before = sum(run.held[-1].end for run in runs)
    return tuple(found) if 2 * start >= before else ()


def _behind(known: Sequence[IndexedSlice], seq: int) -> tuple[IndexedSlice, ...]:
    """Return the slices above `seq`; none if a slice has rows on both sides of it."""
    for count, item in enumerate(known):
        chunks = item.part.chunks
        if chunks and int(chunks[-1].seqs[-1]) > seq:
            return tuple(known[count:]) if int(chunks[0].seqs[0]) > seq else ()
    return ()


def index_bytes(run: HistoryRun) -> int:
    """Return about how many bytes the index takes once it is loaded.

    A load with key runs has none: what readers keep of it are bits.
    """
    if run.nbytes:
        return run.nbytes
    if isinstance(run.table, Attached) and run.table.has_runs:
        return (run.rows + 7) // 8
    return _INDEX_ROW_BYTES * run.rows


def seqs_of(run: HistoryRun) -> Iterator[np.ndarray]:
    """Yield the seqs of its rows, ascending; reads no other column."""
    for batch in run.scan([]):
        yield batch.column(SEQ_COLUMN).to_numpy()


def span_of(run: HistoryRun) -> tuple[int, int]:
    """Return the positions [first, end) in the pin that hold its rows; (0, 0) if there are none."""
    first = end = 0
    for batch in run.scan([], with_positions=True):
        positions = batch.column(POSITION)
        first = first if end else positions[0].as_py()
        end = positions[-1].as_py() + 1
    return first, end
