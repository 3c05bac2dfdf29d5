"""Chunk and run: row versions as Arrow, and the sorted codes that find them.

    chunk    consecutive row versions in seq order: a batch, and per row its code, seq and op
    run      codes in ascending order, each with its row's ordinal; equal codes in ordinal order
    newest   of some chunks the newest version of each key up to a seq, in code order

All are immutable. Ordinals number the rows of one source (a memtable, the un-merged history) from
0 in seq order; a later row of the same seq and key wins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pyarrow as pa

from siltstone.engine.shape import Shape
from siltstone.formats.group import UPSERT
from siltstone.formats.keys import Codes, Key, KeyCodec, newest_rows
from siltstone.formats.rows import value_getter

LADDER_WIDTH = 4


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Chunk:
    """Consecutive rows as Arrow. Deletes have nulls in (or lack) all columns but the key's."""

    start: int
    batch: pa.RecordBatch
    shape: Shape
    codes: Codes
    seqs: np.ndarray
    ops: np.ndarray
    getters: dict[str, Callable[[int], object]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """One above the ordinal of the last row."""
        return self.start + len(self.codes)

    def key_at(self, offset: int) -> Key:
        """Return the key of one row."""
        return self.keys(np.array([offset]))[0]

    def keys(self, offsets: np.ndarray) -> list[Key]:
        """Return the keys of some rows."""
        return self.shape.codec.keys(
            self.batch.select(list(self.shape.codec.names)).take(pa.array(offsets, pa.int64()))
        )

    def row_at(self, offset: int) -> dict[str, object]:
        """Return one row as Python values, by the names of the chunk's shape."""
        if not self.getters:
            names, columns = self.batch.schema.names, self.batch.columns
            self.getters.update(
                {name: value_getter(column) for name, column in zip(names, columns, strict=True)}
            )
        return {name: get(offset) for name, get in self.getters.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Sorted codes and their ordinals."""

    codes: Codes
    ordinals: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Newest:
    """The newest version of each key of one source up to a seq, in code order.

    `chunks` are what the ordinals point into (of un-merged history: its keys only).
    """

    codes: Codes
    ordinals: np.ndarray
    is_live: np.ndarray
    chunks: tuple[Chunk, ...]
    seq: int | None


EMPTY_RUN = Run(np.zeros(0, np.int64), np.zeros(0, np.int64))


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


def rung(runs: Sequence[Run]) -> tuple[int, int] | None:
    """Return the slice of the newest `LADDER_WIDTH` runs of like size; None when there is none."""
    for last in range(len(runs), LADDER_WIDTH - 1, -1):
        sizes = [len(run.codes) for run in runs[last - LADDER_WIDTH : last]]
        if max(sizes) <= LADDER_WIDTH * max(1, min(sizes)):
            return last - LADDER_WIDTH, last
    return None


def locate(chunks: Sequence[Chunk], ordinal: int) -> tuple[Chunk, int]:
    """Return the chunk that holds `ordinal`, and the offset in it."""
    chunk = chunks[bisect_right(chunks, ordinal, key=lambda c: c.start) - 1]
    return chunk, ordinal - chunk.start


def keys_at(chunks: Sequence[Chunk], ordinals: np.ndarray) -> list[Key]:
    """Return the keys of the rows at `ordinals`, in that order."""
    order = np.argsort(ordinals, kind="stable")
    ascending = ordinals[order]
    keys = np.empty(len(ordinals), object)
    for chunk in chunks:
        low, high = np.searchsorted(ascending, (chunk.start, chunk.end))
        if low < high:
            found = chunk.keys(ascending[low:high] - chunk.start)
            for place, key in zip(order[low:high].tolist(), found, strict=True):
                keys[place] = key
    return keys.tolist()


def newest_of(codec: KeyCodec, chunks: Sequence[Chunk], run: Run, seq: int | None = None) -> Newest:
    """Return the newest version of each key in `run` with a seq <= `seq` (None: all of them)."""
    codes, ordinals = run.codes, run.ordinals
    if not len(codes):
        return Newest(codes, ordinals, np.zeros(0, bool), (), seq)
    if seq is not None:
        kept = np.concatenate([chunk.seqs for chunk in chunks])[ordinals] <= seq
        codes, ordinals = codes[kept], ordinals[kept]
    chosen = newest_rows(codec, codes, lambda at: keys_at(chunks, ordinals[at]))
    codes, ordinals = codes[chosen], ordinals[chosen]
    ops = np.concatenate([chunk.ops for chunk in chunks])
    return Newest(codes, ordinals, ops[ordinals] == UPSERT, tuple(chunks), seq)


def find_version(
    chunks: Sequence[Chunk], runs: Sequence[Run], code: int, key: Key, seq: int
) -> tuple[Chunk, int] | None:
    """Return chunk and offset of the newest version of `key` with a seq <= `seq`, if there is one.

    The newest run is asked first: runs are in seq order.
    """
    for run in reversed(runs):
        index = int(run.codes.searchsorted(code, "right")) - 1
        while index >= 0 and run.codes[index] == code:
            chunk, offset = locate(chunks, int(run.ordinals[index]))
            if chunk.seqs[offset] <= seq and (
                chunk.shape.codec.exact or chunk.key_at(offset) == key
            ):
                return chunk, offset
            index -= 1
    return None


def rows_at(
    chunks: Sequence[Chunk], ordinals: np.ndarray, shape: Shape, columns: Sequence[str]
) -> list[pa.RecordBatch]:
    """Return the rows at `ordinals` (ascending) as batches with `columns` of `shape`."""
    fields = shape.fields(columns)
    batches = []
    for chunk in chunks:
        low, high = np.searchsorted(ordinals, (chunk.start, chunk.end))
        if low == high:
            continue
        arrays = shape.align(chunk.batch, chunk.shape, columns)
        count = chunk.batch.num_rows
        if high - low < count:
            wanted = pa.array(ordinals[low:high] - chunk.start, pa.int64())
            arrays = [array.take(wanted) for array in arrays]
        batches.append(batch_of(arrays, fields, int(high - low)))
    return batches


def batch_of(arrays: list[pa.Array], fields: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch; without a column it still has its number of rows."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=fields)
    empty = pa.array([{}] * rows, pa.struct([]))
    return pa.RecordBatch.from_struct_array(cast("pa.StructArray", empty))
