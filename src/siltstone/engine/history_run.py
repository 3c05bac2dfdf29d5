"""History run: the un-merged part of a table's history, read from Lance.

It covers the seqs (low, high] of one pinned history. Its keys, seqs and ops are read once, in row
order, and kept as an index; the rows themselves stay in Lance and are taken by position (few) or
scanned (many). Row order in history is seq order, and the positions of a pin never change.

Lock: one, held while the index is loaded, so that it is loaded once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from siltstone.engine.chunk import (
    Chunk,
    Newest,
    Run,
    batch_of,
    find_version,
    newest_of,
    run_of,
)
from siltstone.engine.memtable import Found
from siltstone.engine.shape import Shape, shape_of
from siltstone.formats.group import DELETE
from siltstone.formats.keys import Key
from siltstone.formats.manifest import Schema
from siltstone.formats.schema import OP_COLUMN, SEQ_COLUMN, history_name
from siltstone.storage.tables import POSITION, PinnedTable

_INDEX_ROW_BYTES = 64
_TAKE_ROWS_MAX = 2_000
_TAKE_SHARE_MAX = 0.02


class HistoryRun:
    """Row versions with low < _seq <= high (see the module)."""

    def __init__(
        self,
        opened: Callable[[], PinnedTable],
        schema: Schema,
        low: int,
        high: int,
        *,
        lease: object = None,
    ) -> None:
        """Open lazily: `opened` is asked once, at the first read; runs are made under locks.

        `lease` is whatever keeps the pin's files alive, kept as long as this.
        """
        self.low, self.high = low, high
        self._opened: Callable[[], PinnedTable] = functools.cache(opened)
        self._shape = shape_of(schema)
        self.lease = lease
        self._lock = threading.Lock()
        self._index: tuple[Chunk, Run, np.ndarray] | None = None
        self._newest: Newest | None = None
        self._rows: int | None = None

    @property
    def table(self) -> PinnedTable:
        """The pinned dataset."""
        return self._opened()

    @property
    def rows(self) -> int:
        """How many row versions it holds: counted once, from the seqs alone."""
        if self._rows is None:
            self._rows = sum(batch.num_rows for batch in self._scan([]))
        return self._rows

    @property
    def index_bytes(self) -> int:
        """About how many bytes the index takes once it is loaded."""
        return self.nbytes or _INDEX_ROW_BYTES * self.rows

    @property
    def nbytes(self) -> int:
        """Bytes that the index holds in memory (0 until it is loaded)."""
        if self._index is None:
            return 0
        chunk, run, positions = self._index
        arrays = (chunk.codes, chunk.seqs, chunk.ops, run.codes, run.ordinals, positions)
        return sum(array.nbytes for array in arrays) + chunk.batch.nbytes

    @property
    def first_seq(self) -> int:
        """The lowest seq that a row may have."""
        return self.low + 1

    @property
    def last_seq(self) -> int:
        """The highest seq that a row may have."""
        return self.high

    def _loaded(self) -> tuple[Chunk, Run, np.ndarray]:
        with self._lock:
            if self._index is None:
                self._index = self._load()
            return self._index

    def _load(self) -> tuple[Chunk, Run, np.ndarray]:
        codec = self._shape.codec
        columns = [history_name(column_id) for column_id in self._shape.schema.key]
        parts = list(self._scan([*columns, OP_COLUMN], with_positions=True))
        fields = [self._shape.arrow.field(name) for name in codec.names]
        whole = pa.Table.from_batches(parts).combine_chunks().to_batches() if parts else []
        if not whole:
            keys = pa.RecordBatch.from_arrays(
                [pa.array([], f.type) for f in fields], names=list(codec.names)
            )
            nothing = np.zeros(0, np.int64)
            chunk = Chunk(0, keys, self._shape, nothing, nothing, np.zeros(0, np.int8))
            return chunk, run_of(nothing, 0), nothing
        rows = whole[0]
        keys = pa.RecordBatch.from_arrays(
            [rows.column(name) for name in columns], names=list(codec.names)
        )
        codes = codec.codes(keys)
        chunk = Chunk(
            0,
            keys,
            self._shape,
            codes,
            rows.column(SEQ_COLUMN).to_numpy(),
            rows.column(OP_COLUMN).to_numpy(),
        )
        return chunk, run_of(codes, 0), rows.column(POSITION).to_numpy()

    def _scan(
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

    def find(self, key: Key, seq: int) -> Found | None:
        """Return the newest version of `key` with a seq <= `seq`, None if there is none here."""
        chunk, run, positions = self._loaded()
        code = self._shape.codec.code(key)
        version = find_version((chunk,), (run,), code, key, seq)
        if version is None:
            return None
        offset = version[1]
        written = int(chunk.seqs[offset])
        if chunk.ops[offset] == DELETE:
            return Found(None, self._shape, written)
        names = [history_name(c.id) for c in self._columns(self._shape)]
        row = self.table.take(positions[offset : offset + 1], names).to_pylist()[0]
        columns = self._shape.schema.columns
        return Found({c.name: row.get(history_name(c.id)) for c in columns}, self._shape, written)

    def newest(self, seq: int) -> Newest:
        """Return the newest version of each key with a seq <= `seq`."""
        chunk, run, _ = self._loaded()
        if seq < self.high:
            return newest_of(self._shape.codec, (chunk,), run, seq)
        if self._newest is None:
            self._newest = newest_of(self._shape.codec, (chunk,), run)
        return self._newest

    def positions_of(self, ordinals: np.ndarray) -> np.ndarray:
        """Return the positions, in the pin, of the rows at `ordinals`."""
        return self._loaded()[2][ordinals]

    def rows_at(
        self, newest: Newest, ordinals: np.ndarray, shape: Shape, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows at `ordinals` (ascending) with `columns` of `shape`."""
        del newest  # the ordinals alone say which rows: all of them are in one pin
        if not len(ordinals):
            return
        chunk, _, positions = self._loaded()
        ids = {c.name: c.id for c in shape.schema.columns}
        has = set(self.table.schema.names)
        names = [history_name(ids[name]) for name in columns]
        stored = [name for name in names if name in has]
        if len(ordinals) <= max(_TAKE_ROWS_MAX, _TAKE_SHARE_MAX * len(chunk.codes)):
            if not stored:
                yield self._project(len(ordinals), None, names, shape, columns)
                return
            taken = self.table.take(positions[ordinals], stored)
            for batch in taken.combine_chunks().to_batches():
                yield self._project(batch.num_rows, batch, names, shape, columns)
            return
        start = 0
        for batch in self._scan(stored):
            end = start + batch.num_rows
            low, high = np.searchsorted(ordinals, (start, end))
            if low < high:
                rows = batch.take(pa.array(ordinals[low:high] - start, pa.int64()))
                yield self._project(rows.num_rows, rows, names, shape, columns)
            start = end

    def _project(
        self,
        rows: int,
        batch: pa.RecordBatch | None,
        names: Sequence[str],
        shape: Shape,
        columns: Sequence[str],
    ) -> pa.RecordBatch:
        fields = shape.fields(columns)
        arrays = []
        for name, field in zip(names, fields, strict=True):
            index = -1 if batch is None else batch.schema.get_field_index(name)
            if batch is None or index < 0:
                arrays.append(pa.nulls(rows, field.type))
            else:
                arrays.append(batch.column(index))
        return batch_of(arrays, fields, rows)

    def _columns(self, shape: Shape) -> list:
        has = set(self.table.schema.names)
        return [c for c in shape.schema.columns if history_name(c.id) in has]

    def chunks_upto(self, seq: int) -> Iterator[Chunk]:
        """Yield every row version as chunks in seq order; the caller masks by `seqs`."""
        shape = self._shape
        codec = shape.codec
        columns = self._columns(shape)
        start = 0
        for batch in self._scan([*(history_name(c.id) for c in columns), OP_COLUMN]):
            seqs = batch.column(SEQ_COLUMN).to_numpy()
            if seqs[0] > seq:
                break
            rows = pa.RecordBatch.from_arrays(
                [batch.column(history_name(c.id)) for c in columns],
                names=[c.name for c in columns],
            )
            ops = batch.column(OP_COLUMN).to_numpy()
            yield Chunk(start, rows, shape, codec.codes(rows), seqs, ops)
            start += batch.num_rows
