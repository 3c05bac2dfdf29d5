"""Memtable: the committed rows of one table that Lance does not hold yet.

    ACTIVE ──seal──▶ SEALED ──retire──▶ (a flushed run that may stay resident as a cache)
    takes commits    being flushed

    contents   one immutable triple, replaced in one assignment:
      tail     the newest rows as tuples (at most `TAIL_ROWS_MAX`), a dict key -> newest position,
               and for each row the position of the older version of its key
      chunks   frozen tails and Arrow batches, as Arrow, in ordinal order
      runs     the sorted codes of the chunks' keys with their ordinals

Rows are numbered by *ordinal*, in seq order, and are never changed or removed: a row that a
snapshot at S must not see has a seq above S. So a snapshot is one number. Readers take `contents`
once and hold no lock; a freeze between two reads of its parts would lose rows. One leader at a time
appends. The lock is held only to swap `contents`, which the thread that merges runs or joins chunks
also does.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels.chunk import (
    NOTHING,
    Chunk,
    IndexedSlice,
    Run,
    Slice,
    between,
    find_version,
    join_chunks,
    keys_at,
    merge_runs,
    rows_at,
    rows_kept,
    run_of,
    small_rung,
    tier,
)
from siltstone.engine.levels.load_keys import Part
from siltstone.engine.levels.origin import Origin
from siltstone.formats.keys import Codes, Key, newest_rows
from siltstone.formats.log.group import DELETE, UPSERT
from siltstone.formats.rows import Row

TAIL_ROWS_MAX = 4096
_TAIL_ROW_BYTES = 130
_RUN_ROW_BYTES = 33


class Found(NamedTuple):
    """The newest version of a key in one source: `row` is None for a delete."""

    row: dict[str, object] | None
    table_schema: TableSchema
    seq: int


class Tail:
    """The newest rows, as tuples. The leader appends; readers trust a key only after its row."""

    __slots__ = ("index", "older", "ops", "rows", "seqs", "start", "table_schema")

    def __init__(self, start: int, table_schema: TableSchema) -> None:
        self.start, self.table_schema = start, table_schema
        self.rows: list[Row] = []
        self.seqs: list[int] = []
        self.ops: list[int] = []
        self.older: list[int] = []
        self.index: dict[Key, int] = {}

    def append(self, key: Key, row: Row, op: int, seq: int) -> None:
        """Add one version. The index goes last: a reader that finds a position finds its row."""
        position = len(self.rows)
        self.older.append(self.index.get(key, -1))
        self.seqs.append(seq)
        self.ops.append(op)
        self.rows.append(row)
        self.index[key] = position

    def find(self, key: Key, seq: int) -> int:
        """Return the position of the newest version with a seq <= `seq`, -1 if there is none."""
        position = self.index.get(key, -1)
        while position >= 0 and self.seqs[position] > seq:
            position = self.older[position]
        return position

    def chunk(self, count: int, first: int = 0) -> Chunk:
        """Return the rows [first, count) as a chunk."""
        rows = self.rows[first:count]
        key_of = self.table_schema.codec.key_of
        return Chunk(
            start=self.start + first,
            batch=self.table_schema.rows.to_batch(rows),
            table_schema=self.table_schema,
            codes=self.table_schema.codec.codes_of([key_of(row) for row in rows]),
            seqs=np.fromiter(self.seqs[first:count], np.int64, len(rows)),
            ops=np.fromiter(self.ops[first:count], np.int8, len(rows)),
        )


class Contents(msgspec.Struct, frozen=True, eq=False):
    """The value that a reader takes in one reference."""

    tail: Tail
    chunks: tuple[Chunk, ...]
    runs: tuple[Run, ...]


class Memtable:
    """Rows of one incarnation in seq order (see the module)."""

    __slots__ = ("__weakref__", "_lock", "_tail_chunks", "contents", "nbytes", "origin")

    def __init__(self, table_schema: TableSchema) -> None:
        self.contents = Contents(Tail(0, table_schema), (), ())
        self.nbytes = 0
        self._lock = threading.Lock()
        self._tail_chunks: tuple[Tail, tuple[Chunk, ...]] | None = None
        self.origin = Origin()  # names these rows, also when they are history: see `chunk.Slice`

    # writes: one leader at a time

    def append_rows(
        self,
        table_schema: TableSchema,
        upserts: Sequence[Row],
        keys: Sequence[Key],
        deletes: Sequence[Key],
        seq: int,
    ) -> None:
        """Add the rows (with their keys), then the deletes, of the commit `seq`."""
        added = len(upserts) + len(deletes)
        tail = self.contents.tail
        if tail.table_schema.id != table_schema.id or len(tail.rows) + added > TAIL_ROWS_MAX:
            self._freeze()
            self._push_tail(table_schema)
            tail = self.contents.tail
        older, rows, index, place = tail.older, tail.rows, tail.index, len(tail.rows)
        for key, row in zip(keys, upserts, strict=True):  # as `Tail.append`, without a call each
            older.append(index.get(key, -1))
            tail.seqs.append(seq)
            tail.ops.append(UPSERT)
            rows.append(row)
            index[key] = place
            place += 1
        for key in deletes:
            tail.append(key, table_schema.delete_row(key), DELETE, seq)
        self.nbytes += _TAIL_ROW_BYTES * added

    def append_few(
        self,
        table_schema: TableSchema,
        rows: Sequence[Row],
        ops: Sequence[int],
        seqs: Sequence[int],
    ) -> None:
        """Add rows of several commits, few enough for a tail, where the commits would put them.

        Of a delete the row has the key alone.
        """
        tail = self.contents.tail
        if tail.table_schema.id != table_schema.id or len(tail.rows) + len(rows) > TAIL_ROWS_MAX:
            self._freeze()
            self._push_tail(table_schema)
            tail = self.contents.tail
        key_of = table_schema.codec.key_of
        for row, op, seq in zip(rows, ops, seqs, strict=True):
            tail.append(key_of(row), row, op, seq)
        self.nbytes += _TAIL_ROW_BYTES * len(rows)

    def append_versions(
        self,
        table_schema: TableSchema,
        batch: pa.RecordBatch,
        codes: Codes,
        seqs: np.ndarray,
        ops: np.ndarray,
    ) -> None:
        """Add rows of several commits at once (recovery); `seqs` ascends."""
        if not batch.num_rows:
            return
        self._freeze()
        chunk = Chunk(self.contents.tail.start, batch, table_schema, codes, seqs, ops)
        self._push(chunk, table_schema)
        self.nbytes += batch.nbytes + _RUN_ROW_BYTES * batch.num_rows

    def _freeze(self) -> None:
        """Turn the tail into a chunk; called by the leader, the seal, or a sole owner."""
        tail = self.contents.tail
        if tail.rows:
            chunk = tail.chunk(len(tail.rows))
            self._push(chunk, tail.table_schema)
            row_bytes = _RUN_ROW_BYTES - _TAIL_ROW_BYTES
            self.nbytes += chunk.batch.nbytes + row_bytes * len(chunk.codes)

    def _push(self, chunk: Chunk, table_schema: TableSchema) -> None:
        run = run_of(chunk.codes, chunk.start)
        with self._lock:
            now = self.contents
            self.contents = Contents(
                Tail(chunk.end, table_schema), (*now.chunks, chunk), (*now.runs, run)
            )

    def _push_tail(self, table_schema: TableSchema) -> None:
        with self._lock:
            now = self.contents
            self.contents = Contents(Tail(now.tail.start, table_schema), now.chunks, now.runs)

    def merge_runs(self) -> bool:
        """Merge the newest runs of similar size, join small chunks; return whether there were any.

        Any thread may call it: the leader only appends after the merged runs.
        """
        return self._merge_runs() | self._join_chunks()

    def settle(self) -> None:
        """Freeze a sealed memtable, and reduce it to few chunks and runs; appends have ended."""
        self._freeze()
        while self.merge_runs():
            pass

    def _merge_runs(self) -> bool:
        runs = self.contents.runs
        window = tier(runs)
        if window is None:
            return False
        first, last = window
        merged = merge_runs(runs[first:last])
        with self._lock:
            now = self.contents
            if now.runs[first:last] != runs[first:last]:  # another thread was faster
                return False
            rest = (*now.runs[:first], merged, *now.runs[last:])
            self.contents = Contents(now.tail, now.chunks, rest)
        return True

    def _join_chunks(self) -> bool:
        chunks = self.contents.chunks
        window = small_rung(chunks)
        if window is None:
            return False
        first, last = window
        joined = join_chunks(chunks[first:last])
        with self._lock:
            now = self.contents
            if now.chunks[first:last] != chunks[first:last]:
                return False
            rest = (*now.chunks[:first], joined, *now.chunks[last:])
            self.contents = Contents(now.tail, rest, now.runs)
        return True

    # reads: any thread, no lock

    @property
    def rows(self) -> int:
        """The number of row versions."""
        tail = self.contents.tail
        return tail.start + len(tail.rows)

    @property
    def first_seq(self) -> int:
        """The seq of the first row; 0 without rows."""
        contents = self.contents
        if contents.chunks:
            return int(contents.chunks[0].seqs[0])
        return contents.tail.seqs[0] if contents.tail.seqs else 0

    @property
    def last_seq(self) -> int:
        """The seq of the last row; 0 without rows."""
        contents = self.contents
        if contents.tail.seqs:
            return contents.tail.seqs[-1]
        return int(contents.chunks[-1].seqs[-1]) if contents.chunks else 0

    def find(self, key: Key, seq: int) -> Found | None:
        """Return the newest version of `key` with a seq <= `seq`, None if there is none here."""
        contents = self.contents
        tail = contents.tail
        position = tail.index.get(key, -1)
        if position >= 0 and tail.seqs[position] > seq:
            position = tail.find(key, seq)
        if position >= 0:
            is_delete = tail.ops[position] == DELETE
            row = None if is_delete else tail.table_schema.rows.to_user(tail.rows[position])
            return Found(row, tail.table_schema, tail.seqs[position])
        if not contents.runs:
            return None
        code = tail.table_schema.codec.code(key)
        version = find_version(contents.chunks, contents.runs, code, key, seq)
        if version is None:
            return None
        chunk, offset = version
        is_delete = chunk.ops.item(offset) == DELETE
        row = None if is_delete else chunk.row_at(offset)
        return Found(row, chunk.table_schema, chunk.seqs.item(offset))

    def parts(self, seq: int) -> tuple[Slice, ...]:
        """Return the rows with a seq <= `seq`, as one part."""
        contents = self.contents
        count = bisect_right(contents.tail.seqs, seq)
        chunks = contents.chunks
        if count:
            tail = self._chunks_of(contents.tail, count)
            return (Slice(self.origin, (*chunks, *tail), tail[-1].end),)
        return (Slice(self.origin, chunks, contents.tail.start).upto(seq),)

    def _chunks_of(self, tail: Tail, count: int) -> tuple[Chunk, ...]:
        """Return the first rows of the tail; those of the last answer are not converted again.

        A row of a long vector takes 40 us, and each commit is read by the next scan.
        """
        known = self._tail_chunks
        chunks = known[1] if known is not None and known[0] is tail else ()
        made = chunks[-1].end - tail.start if chunks else 0
        if made < count:
            chunks = _joined((*chunks, tail.chunk(count, made)))
            self._tail_chunks = (tail, chunks)
        elif made > count:
            end = tail.start + count
            within = [chunk for chunk in chunks if chunk.start < end]
            chunks = tuple(chunk.cut(0, min(chunk.end, end) - chunk.start) for chunk in within)
        return chunks

    def rows_kept(
        self,
        parts: Sequence[Part],
        kept: pa.BooleanArray,
        table_schema: TableSchema,
        columns: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `parts` with a bit in `kept`, in seq order."""
        assert isinstance(parts[0], Slice)
        yield from rows_kept(parts[0].chunks, kept, table_schema, columns)

    def rows_at(
        self,
        parts: Sequence[Part],
        ordinals: np.ndarray,
        table_schema: TableSchema,
        columns: Sequence[str],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `parts` at some ordinals, ascending."""
        assert isinstance(parts[0], Slice)
        return rows_at(parts[0].chunks, ordinals, table_schema, columns)

    def changes(self, after: int, seq: int) -> list[Chunk]:
        """Return the row versions with after < seq <= `seq`, in seq order."""
        contents = self.contents
        tail = contents.tail
        found = [between(chunk, after, seq) for chunk in _behind(contents.chunks, after)]
        first, count = bisect_right(tail.seqs, after), bisect_right(tail.seqs, seq)
        if first < count:
            found.append(tail.chunk(count, first))
        return [chunk for chunk in found if len(chunk.codes)]

    def chunks_upto(self, seq: int) -> tuple[Chunk, ...]:
        """Return every row version with a seq <= `seq` as chunks in seq order.

        The last chunk may hold rows above `seq`; the caller masks by `seqs`.
        """
        contents = self.contents
        count = bisect_right(contents.tail.seqs, seq)
        chunks = tuple(chunk for chunk in contents.chunks if int(chunk.seqs[0]) <= seq)
        return (*chunks, contents.tail.chunk(count)) if count else chunks


def _joined(chunks: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
    """Return the chunks of a tail, the last ones of like size as one: each has its cost."""
    while len(chunks) > 1 and len(chunks[-2].codes) <= 2 * len(chunks[-1].codes):
        chunks = (*chunks[:-2], join_chunks(chunks[-2:]))
    return chunks


def _behind(chunks: Sequence[Chunk], seq: int) -> Sequence[Chunk]:
    """Return the chunks that have rows above `seq`."""
    return chunks[bisect_right(chunks, seq, key=lambda chunk: int(chunk.seqs[-1])) :]


def append_batch(
    memtable: Memtable,
    table_schema: TableSchema,
    batch: pa.RecordBatch,
    codes: Codes,
    op: int,
    seq: int,
) -> None:
    """Add a batch of the commit `seq`: it becomes a chunk and a sorted run at once.

    A delete's batch may have the key columns only.
    """
    count = batch.num_rows
    seqs, ops = np.full(count, seq, np.int64), np.full(count, op, np.int8)
    memtable.append_versions(table_schema, batch, codes, seqs, ops)


def part_of(memtable: Memtable, after: int, seq: int) -> Memtable:
    """Return the row versions with after < seq <= `seq`, as a memtable of their own."""
    found = Memtable(memtable.contents.tail.table_schema)
    for chunk in memtable.changes(after, seq):
        found.append_versions(chunk.table_schema, chunk.batch, chunk.codes, chunk.seqs, chunk.ops)
    found.merge_runs()
    return found


def indexed(memtable: Memtable) -> tuple[IndexedSlice, ...]:
    """Return the keys of all rows with their runs; nothing unless it is sealed and frozen."""
    contents = memtable.contents
    if contents.tail.rows or not contents.chunks:
        return ()
    chunks = tuple(chunk.of_keys() for chunk in contents.chunks)
    return (IndexedSlice(Slice(memtable.origin, chunks, contents.tail.start), contents.runs),)


class Newest(msgspec.Struct, frozen=True, eq=False):
    """The newest version of each key of one memtable, in code order, with its chunks."""

    ordinals: np.ndarray
    is_live: np.ndarray
    chunks: tuple[Chunk, ...]


def newest_versions(memtable: Memtable) -> Newest:
    """Return the newest version of each key."""
    contents = memtable.contents
    codec, count = contents.tail.table_schema.codec, len(contents.tail.rows)
    chunks, runs = contents.chunks, contents.runs
    if count:
        tail = contents.tail.chunk(count)
        chunks, runs = (*chunks, tail), (*runs, run_of(tail.codes, tail.start))
    run = merge_runs(runs)
    if not len(run.codes):
        return Newest(NOTHING, np.zeros(0, bool), ())
    chosen = newest_rows(codec, run.codes, lambda at: keys_at(chunks, run.ordinals[at]))
    ordinals = run.ordinals[chosen]
    ops = np.concatenate([chunk.ops for chunk in chunks])
    return Newest(ordinals, ops[ordinals] == UPSERT, chunks)
