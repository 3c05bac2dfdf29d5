"""Kept batches: the rows of batches that have a bit, by their order or by their positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from siltstone.formats.bits import Bits
from siltstone.storage.tables.values import POSITION

_FEW = 8
"""Few rows of a batch are hidden if it is at most one in so many (ADR 53)."""


def batches_kept(
    batches: Iterable[pa.RecordBatch], kept: pa.BooleanArray
) -> Iterator[pa.RecordBatch]:
    """Yield the rows with a bit in `kept`; the batches are complete and in row order."""
    start = 0
    for batch in batches:
        if start + batch.num_rows > len(kept):  # rows beyond those asked for
            batch = batch.slice(0, len(kept) - start)  # noqa: PLW2901
        mask = kept.slice(start, batch.num_rows)
        start += batch.num_rows
        count = mask.true_count
        if count:
            yield batch if count == batch.num_rows else rows_kept_of(batch, mask, count)


def batches_kept_by_position(
    batches: Iterable[pa.RecordBatch], kept: Bits
) -> Iterator[pa.RecordBatch]:
    """Yield the rows with a bit in `kept`, from batches with a column of positions."""
    for batch in batches:
        mask = pa.array(kept.has(batch.column(POSITION).to_numpy()))
        rest, count = batch.drop_columns([POSITION]), mask.true_count
        yield rest if count == len(mask) else rows_kept_of(rest, mask, count)


def rows_kept_of(batch: pa.RecordBatch, mask: pa.BooleanArray, count: int) -> pa.RecordBatch:
    """Return the rows of a batch with a bit in `mask`, which are `count`.

    Arrow makes row numbers of the bits to filter a batch, and takes each row by its number. The
    filter of one column goes through the bits by words and copies the runs between hidden rows:
    half of the time where few are hidden, and up to twice the time where many are.
    """
    if not batch.num_columns or (len(mask) - count) * _FEW > len(mask):
        return batch.filter(mask)
    return pa.RecordBatch.from_arrays(
        [column.filter(mask) for column in batch.columns], schema=batch.schema
    )
