"""Kept batches: the rows of batches that have a bit, by their order or by their positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from siltstone.formats.bits import Bits
from siltstone.storage.tables.values import POSITION


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
            yield batch if count == batch.num_rows else batch.filter(mask)


def batches_kept_by_position(
    batches: Iterable[pa.RecordBatch], kept: Bits
) -> Iterator[pa.RecordBatch]:
    """Yield the rows with a bit in `kept`, from batches with a column of positions."""
    for batch in batches:
        has = kept.has(batch.column(POSITION).to_numpy())
        rest = batch.drop_columns([POSITION])
        yield rest if has.all() else rest.filter(pa.array(has))
