"""Resident rows: all rows of a base as Arrow, a part at a time. Immutable.

A fold leaves most parts as they are: the base after it takes their rows over, and reads the new
parts alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import cast

import numpy as np
import pyarrow as pa

from siltstone.formats.keys import Key, KeyCodec
from siltstone.formats.rows import value_getter
from siltstone.storage.tables.values import PartId

BATCH_ROWS = 122_880
"""What DuckDB takes for one of its threads; a small batch costs it more than its rows."""


class ResidentPart:
    """The rows of one part, by offset."""

    __slots__ = ("_getters", "_table", "nbytes", "rows")

    def __init__(self, table: pa.Table) -> None:
        """Take rows whose columns are in one chunk each."""
        self._table, self.nbytes, self.rows = table, table.nbytes, table.num_rows
        self._getters = {
            name: value_getter(cast("pa.Array", table.column(name).chunk(0)))
            for name in (table.schema.names if table.num_rows else ())
        }

    def row(self, offset: int) -> dict[str, object]:
        """Return one row as Python values."""
        return {name: get(offset) for name, get in self._getters.items()}

    def key(self, codec: KeyCodec, offset: int) -> Key:
        """Return one row's key, as a storage value."""
        return codec.keys(self._table.slice(offset, 1))[0]

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of all rows, in their order; nothing is copied."""
        columns = self._table.select(list(names))
        for start in range(0, self.rows, BATCH_ROWS):
            yield from columns.slice(start, BATCH_ROWS).to_batches()

    def take(self, offsets: np.ndarray, names: Sequence[str]) -> pa.Table:
        """Return some columns of the rows at `offsets`, in that order."""
        columns, count = self._table.select(list(names)), len(offsets)
        if (offsets == np.arange(offsets[0], offsets[0] + count)).all():
            return columns.slice(int(offsets[0]), count)
        return columns.take(pa.array(offsets, pa.int64()))


class Resident:
    """The rows of all parts, by position."""

    __slots__ = ("_parts", "_starts", "by_id", "nbytes")

    def __init__(self, parts: Mapping[PartId, ResidentPart]) -> None:
        """Take the parts, in row order."""
        self.by_id, self._parts = parts, [*parts.values()]
        self._starts = [*accumulate((part.rows for part in self._parts), initial=0)]
        self.nbytes = sum(part.nbytes for part in self._parts)

    def row(self, position: int) -> dict[str, object]:
        """Return one row as Python values."""
        index = bisect_right(self._starts, position) - 1
        return self._parts[index].row(position - self._starts[index])

    def key(self, codec: KeyCodec, position: int) -> Key:
        """Return one row's key, as a storage value."""
        index = bisect_right(self._starts, position) - 1
        return self._parts[index].key(codec, position - self._starts[index])

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of all rows, hidden ones too, by position; nothing is copied."""
        for part in self._parts:
            yield from part.batches(names)

    def take(self, positions: np.ndarray, names: Sequence[str]) -> pa.Table:
        """Return columns of some rows, one at least, in their order."""
        parts = np.searchsorted(self._starts, positions, "right") - 1
        found = [
            self._parts[index].take(positions[parts == index] - self._starts[index], names)
            for index in np.unique(parts).tolist()
        ]
        if len(found) == 1:
            return found[0]
        back = np.empty(len(parts), np.int64)
        back[np.argsort(parts, kind="stable")] = np.arange(len(parts))
        return pa.concat_tables(found).take(pa.array(back, pa.int64()))
