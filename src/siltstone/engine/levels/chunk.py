"""Chunk and run: row versions as Arrow, and the sorted codes that find them.

    chunk    consecutive row versions in seq order: a batch, and per row its code, seq and op
    part     the first rows of one origin (a memtable, a load of history), as chunks
    run      codes in ascending order, each with its row's ordinal; equal codes in ordinal order
    newest   the newest version of each key in some chunks, in code order

All are immutable. Ordinals number the rows of one source (a memtable, the un-merged history) from
0 in seq order; a later row of the same seq and key wins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import cast

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels.origin import Origin
from siltstone.formats.keys import Codes, Key, KeyColumns, in_order, pairs
from siltstone.formats.order.key_bytes import ByteKeys
from siltstone.formats.rows import value_getter

TIER_WIDTH = 4
_JOINED_MIN = 8
_JOINED_ROWS_MAX = 65_536
_JOINED_BYTES_MAX = 8 << 20
_BATCH_ROWS_MIN = 32_768
_SORTED_FIRST, _SORTED_MOST = 256, 32_768
_START = attrgetter("start")
_BATCH_BYTES_MIN = 4 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Consecutive rows as Arrow. Deletes have nulls in (or lack) all columns but the key's."""

    start: int
    batch: pa.RecordBatch
    table_schema: TableSchema
    codes: Codes
    seqs: np.ndarray
    ops: np.ndarray
    getters: dict[str, Callable[[int], object]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """One above the ordinal of the last row."""
        return self.start + len(self.codes)

    def of_keys(self) -> Chunk:
        """Return the same rows with the key columns only."""
        return replace(
            self, batch=self.batch.select(list(self.table_schema.codec.names)), getters={}
        )

    def moved(self, start: int) -> Chunk:
        """Return the same rows with ordinals from `start` on."""
        return self if start == self.start else replace(self, start=start)

    def cut(self, low: int, high: int) -> Chunk:
        """Return the rows at the offsets [low, high)."""
        if low == 0 and high == len(self.codes):
            return self
        return Chunk(
            self.start + low,
            self.batch.slice(low, high - low),
            self.table_schema,
            self.codes[low:high],
            self.seqs[low:high],
            self.ops[low:high],
        )

    def key_at(self, offset: int) -> Key:
        """Return the key of one row."""
        codec = self.table_schema.codec
        return codec.keys(self.batch.select(list(codec.names)).slice(offset, 1))[0]

    def keys(self, offsets: np.ndarray) -> KeyColumns:
        """Return the keys of some rows."""
        codec = self.table_schema.codec
        some = self.batch.select(list(codec.names)).take(pa.array(offsets, pa.int64()))
        return codec.columns(some)

    def row_at(self, offset: int) -> dict[str, object]:
        """Return one row as Python values, by the names of the chunk's schema."""
        if not self.getters:
            names, columns = self.batch.schema.names, self.batch.columns
            self.getters.update(
                {name: value_getter(column) for name, column in zip(names, columns, strict=True)}
            )
        return {name: get(offset) for name, get in self.getters.items()}


@dataclass(frozen=True, slots=True, eq=False)
class SortedKeys:
    """Keys in ascending order, and their ordinals."""

    keys: ByteKeys
    ordinals: np.ndarray

    @classmethod
    def of(cls, keys: ByteKeys, ordinals: np.ndarray) -> SortedKeys:
        """Sort some keys."""
        order = keys.argsort()
        return cls(keys[order], ordinals[order])

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.keys.nbytes + self.ordinals.nbytes

    def stretch(
        self, first: bytes, end: bytes | None, *, descending: bool
    ) -> Iterator[tuple[ByteKeys, np.ndarray]]:
        """Yield keys from `first` to below `end` (None: open) and their ordinals, in blocks."""
        low = self.keys.searchsorted(first)
        high = len(self.keys) if end is None else self.keys.searchsorted(end)
        rows = _SORTED_FIRST
        while low < high:
            cut = slice(max(low, high - rows), high) if descending else slice(low, low + rows)
            cut = slice(cut.start, min(cut.stop, high))
            keys, ordinals = self.keys[cut], self.ordinals[cut]
            yield (keys[::-1], ordinals[::-1]) if descending else (keys, ordinals)
            low, high = (low, cut.start) if descending else (cut.stop, high)
            rows = min(2 * rows, _SORTED_MOST)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Sorted codes and their ordinals.

    `sought` are the same codes for one search at a time: NumPy gives up the interpreter lock at
    each search, and eight threads that search spend their time in waiting for it.

    `by_key` is the same in the order of the keys, where codes are hashes: made when it is first
    asked for (`order.level_order`).
    """

    codes: Codes
    ordinals: np.ndarray
    sought: memoryview = field(init=False, repr=False)
    by_key: SortedKeys | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        """Make `sought`."""
        object.__setattr__(self, "sought", self.codes.data)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        more = 0 if self.by_key is None else self.by_key.nbytes
        return self.codes.nbytes + self.ordinals.nbytes + more

    def find(self, codes: Codes) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of an index into `codes` (ascending) and an ordinal of that code."""
        needles, at = pairs(self.codes, codes)
        return needles, self.ordinals[at]

    def between(self, first: int, last: int, *, descending: bool) -> tuple[Codes, np.ndarray]:
        """Return the codes from `first` to `last` and their ordinals, ascending or descending."""
        low, high = int(self.codes.searchsorted(first)), int(self.codes.searchsorted(last, "right"))
        codes, ordinals = self.codes[low:high], self.ordinals[low:high]
        return (codes[::-1], ordinals[::-1]) if descending else (codes, ordinals)


class Slice(msgspec.Struct, frozen=True, eq=False):
    """The first `rows` rows of one origin, in `chunks` from ordinal 0 on.

    Equal origins have equal rows at equal ordinals: `origin` stays the same when a memtable becomes
    history. The chunks of history have the key columns only.
    """

    origin: Origin
    chunks: tuple[Chunk, ...]
    rows: int

    def upto(self, seq: int) -> Slice:
        """Return the rows with a seq <= `seq`."""
        if not self.chunks or int(self.chunks[-1].seqs[-1]) <= seq:
            return self
        last = bisect_right(self.chunks, seq, key=lambda chunk: int(chunk.seqs[0])) - 1
        if last < 0:
            return Slice(self.origin, (), 0)
        chunk = self.chunks[last]
        chunk = chunk.cut(0, int(chunk.seqs.searchsorted(seq, "right")))
        return Slice(self.origin, (*self.chunks[:last], chunk), chunk.end)

    def behind(self, ordinal: int) -> Sequence[Chunk]:
        """Return the rows from `ordinal` on."""
        if ordinal >= self.rows:
            return ()
        first = bisect_right(self.chunks, ordinal, key=lambda chunk: chunk.start) - 1
        chunk = self.chunks[first]
        return (chunk.cut(ordinal - chunk.start, len(chunk.codes)), *self.chunks[first + 1 :])


class IndexedSlice(msgspec.Struct, frozen=True, eq=False):
    """A part with the key columns only, and the runs to find its rows."""

    part: Slice
    runs: tuple[Run, ...]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        chunks = sum(
            chunk.batch.nbytes + chunk.codes.nbytes + chunk.seqs.nbytes + chunk.ops.nbytes
            for chunk in self.part.chunks
        )
        return chunks + sum(run.nbytes for run in self.runs)


NOTHING = np.zeros(0, np.int64)
EMPTY_RUN = Run(NOTHING, NOTHING)


def run_of(codes: Codes, start: int) -> Run:
    """Return the run of consecutive rows whose first ordinal is `start`."""
    if len(codes) < 2 or (codes[1:] > codes[:-1]).all():
        return Run(codes, np.arange(start, start + len(codes)))
    order = np.argsort(codes)
    ordered = codes[order]
    if (ordered[1:] == ordered[:-1]).any():  # the fast sort is unstable, so only without equals
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
    return Run(ordered, order + start)


def merge_runs(runs: Sequence[Run]) -> Run:
    """Merge adjacent runs, oldest first; stable, so that equal codes stay in ordinal order."""
    if not runs:
        return EMPTY_RUN
    if len(runs) == 1:
        return runs[0]
    codes = np.concatenate([run.codes for run in runs])
    order = np.argsort(codes, kind="stable")
    return Run(codes[order], np.concatenate([run.ordinals for run in runs])[order])


def tier(runs: Sequence[Run]) -> tuple[int, int] | None:
    """Return the slice of the newest `TIER_WIDTH` runs of similar size; None if there is none."""
    for last in range(len(runs), TIER_WIDTH - 1, -1):
        sizes = [len(run.codes) for run in runs[last - TIER_WIDTH : last]]
        if max(sizes) <= TIER_WIDTH * max(1, min(sizes)):
            return last - TIER_WIDTH, last
    return None


def small_rung(chunks: Sequence[Chunk]) -> tuple[int, int] | None:
    """Return the slice of the newest chunks that should be joined; None if there is none."""
    last = len(chunks)
    while last >= _JOINED_MIN:
        first, rows, size = last, 0, 0
        while first and _joins(chunks[first - 1], chunks[last - 1]):
            chunk = chunks[first - 1]
            rows, size = rows + len(chunk.codes), size + chunk.batch.nbytes
            if rows > _JOINED_ROWS_MAX or size > _JOINED_BYTES_MAX:
                break
            first -= 1
        if last - first >= _JOINED_MIN:
            return first, last
        last = min(first, last - 1)
    return None


def _joins(chunk: Chunk, other: Chunk) -> bool:
    """Say whether two chunks have the same columns; a delete's may have the key's only."""
    return chunk.table_schema.id == other.table_schema.id and chunk.batch.schema.equals(
        other.batch.schema
    )


def join_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """Return adjacent chunks as one chunk with its own memory."""
    return Chunk(
        chunks[0].start,
        pa.concat_batches([chunk.batch for chunk in chunks]),  # pyright: ignore[reportAttributeAccessIssue]
        chunks[0].table_schema,
        codes_of(chunks),
        np.concatenate([chunk.seqs for chunk in chunks]),
        np.concatenate([chunk.ops for chunk in chunks]),
    )


def between(chunk: Chunk, after: int, seq: int) -> Chunk:
    """Return the rows with after < seq <= `seq`."""
    low, high = chunk.seqs.searchsorted((after, seq), "right").tolist()
    return chunk.cut(low, high)


def codes_of(chunks: Sequence[Chunk]) -> Codes:
    """Return the codes of the rows of some chunks."""
    return np.concatenate([chunk.codes for chunk in chunks]) if chunks else NOTHING


def locate(chunks: Sequence[Chunk], ordinal: int) -> tuple[Chunk, int]:
    """Return the chunk that holds `ordinal`, and the offset in it."""
    chunk = chunks[bisect_right(chunks, ordinal, key=_START) - 1]
    return chunk, ordinal - chunk.start


def keys_at(chunks: Sequence[Chunk], ordinals: np.ndarray) -> KeyColumns:
    """Return the keys of the rows at `ordinals`, one at least, in that order."""
    order = np.argsort(ordinals, kind="stable")
    ascending = ordinals[order]
    found: list[KeyColumns] = []
    for chunk in chunks:
        low, high = np.searchsorted(ascending, (chunk.start, chunk.end))
        if low < high:
            found.append(chunk.keys(ascending[low:high] - chunk.start))
    return in_order(found, order)


def find_version(
    chunks: Sequence[Chunk], runs: Sequence[Run], code: int, key: Key, seq: int
) -> tuple[Chunk, int] | None:
    """Return chunk and offset of the newest version of `key` with a seq <= `seq`, if there is one.

    It searches the newest run first: runs are in seq order.
    """
    for run in reversed(runs):
        codes = run.sought
        index = bisect_right(codes, code) - 1
        while index >= 0 and codes[index] == code:
            chunk, offset = locate(chunks, run.ordinals.item(index))
            if chunk.seqs.item(offset) <= seq and (
                chunk.table_schema.codec.exact or chunk.key_at(offset) == key
            ):
                return chunk, offset
            index -= 1
    return None


def rows_kept(
    chunks: Sequence[Chunk],
    kept: pa.BooleanArray,
    table_schema: TableSchema,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield the chunks' rows with a bit in `kept`, with `columns` of `table_schema`.

    Small chunks share one batch: each batch costs its reader 10 us.
    """
    fields = table_schema.fields(columns)
    pieces: list[list[pa.Array]] = []
    masks: list[pa.Array] = []
    rows = size = 0
    for chunk in chunks:
        mask = kept.slice(chunk.start, len(chunk.codes))
        count = mask.true_count
        if not count:
            continue
        pieces.append(table_schema.align(chunk.batch, chunk.table_schema, columns))
        masks.append(mask)
        rows += count
        size += sum(array.nbytes for array in pieces[-1])
        if rows >= _BATCH_ROWS_MIN or size >= _BATCH_BYTES_MIN:
            yield _filtered(pieces, masks, fields, rows)
            pieces, masks, rows, size = [], [], 0, 0
    if rows:
        yield _filtered(pieces, masks, fields, rows)


def rows_at(
    chunks: Sequence[Chunk], ordinals: np.ndarray, table_schema: TableSchema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows at some ordinals, ascending, with `columns` of `table_schema`."""
    fields, at = table_schema.fields(columns), 0
    while at < len(ordinals):
        chunk, _ = locate(chunks, int(ordinals[at]))
        end = int(ordinals.searchsorted(chunk.end))
        offsets = pa.array(ordinals[at:end] - chunk.start, pa.int64())
        arrays = table_schema.align(chunk.batch, chunk.table_schema, columns)
        yield batch_of([array.take(offsets) for array in arrays], fields, end - at)
        at = end


def _filtered(
    pieces: list[list[pa.Array]], masks: list[pa.Array], fields: pa.Schema, rows: int
) -> pa.RecordBatch:
    if len(pieces) == 1:
        arrays = pieces[0]
        if rows < len(masks[0]):
            arrays = [array.filter(masks[0]) for array in arrays]
        return batch_of(arrays, fields, rows)
    mask = pa.chunked_array(masks)
    is_whole = rows == len(mask)
    arrays = []
    for index, column in enumerate(fields):
        whole = pa.chunked_array([piece[index] for piece in pieces], column.type)
        arrays.append((whole if is_whole else whole.filter(mask)).combine_chunks())
    return batch_of(arrays, fields, rows)


def batch_of(arrays: list[pa.Array], fields: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch; without columns it still has its number of rows."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=fields)
    empty = pa.array([{}] * rows, pa.struct([]))
    return pa.RecordBatch.from_struct_array(cast("pa.StructArray", empty))
