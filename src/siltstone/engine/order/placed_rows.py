"""Placed rows: the rows at some places (`row_places`), in the order of these.

Those of base are read together, and those of each level: each in the order in which they lie, and
then put into the order of the places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema, aligned
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.chunk import batch_of
from siltstone.engine.levels.overlay import Overlay
from siltstone.engine.order.row_places import Places
from siltstone.formats.types.defaults import absent
from siltstone.process import deadline

_ROWS_MIN, _ROWS_FIRST, _ROWS_MAX = 64, 256, 65_536
_BATCH_BYTES = 4 << 20
_EVERY_PLACE = 1 << 62


class PlacedRows(msgspec.Struct, frozen=True):
    """See the module: rows of `base` and of the levels of `overlay`, with some columns."""

    table_schema: TableSchema
    base: Base | None
    overlay: Overlay
    columns: Sequence[str]

    def batches(
        self, blocks: Iterable[Places], likely: int | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of some places, each batch with the place of its last row.

        The first batch has about as many rows as are `likely` wanted, if that is known; later ones
        have more and more, up to `_BATCH_BYTES`.
        """
        count = _ROWS_FIRST if likely is None else max(_ROWS_MIN, min(likely, _ROWS_MAX))
        for _, places in blocks:
            at = 0
            while at < len(places):
                deadline.check()
                rows = self.at(places[at : at + count])
                at += count
                yield int(places[min(at, len(places)) - 1]), rows
                fit = _BATCH_BYTES * rows.num_rows // max(1, rows.nbytes)
                count = max(1, min(2 * count, _ROWS_MAX, fit))

    def at(self, places: np.ndarray) -> pa.RecordBatch:
        """Return the rows at some places, in their order."""
        if not self.columns:
            return batch_of([], pa.schema([]), len(places))
        found: list[pa.RecordBatch] = []
        order: list[np.ndarray] = []
        for numbers, batches in self._parts(places):
            found += batches
            order.append(numbers)
        rows = pa.concat_batches(found)  # pyright: ignore[reportAttributeAccessIssue]
        if len(order) == 1 and (order[0][1:] > order[0][:-1]).all():
            return rows
        return rows.take(pa.array(np.argsort(np.concatenate(order)), pa.int64()))

    def _parts(self, places: np.ndarray) -> Iterator[tuple[np.ndarray, list[pa.RecordBatch]]]:
        """Yield the rows of base, then of each level, behind their indexes into `places`."""
        in_base = _within(places, 0, _EVERY_PLACE)
        if len(in_base):
            yield in_base, self._of_base(places[in_base])
        if len(in_base) == len(places):
            return
        above, columns = ~places, list(self.columns)
        for level in self.overlay.levels:
            numbers = _within(above, level.first, level.first + len(level.kept))
            if len(numbers):
                ordinals = above[numbers] - level.first
                rows = level.source.rows_at(level.parts, ordinals, self.table_schema, columns)
                yield numbers, [*rows]

    def _of_base(self, positions: np.ndarray) -> list[pa.RecordBatch]:
        base, fields = self.base, self.table_schema.fields(self.columns)
        assert base is not None
        stored = self.table_schema.stored(self.columns, base.table_schema)
        names = [name for name in stored if name is not None]
        if not names:
            arrays = [absent(field, len(positions)) for field in fields]
            return [batch_of(arrays, fields, len(positions))]
        taken = base.take_read(positions, names).combine_chunks().to_batches()
        return [batch_of(aligned(rows, stored, fields), fields, rows.num_rows) for rows in taken]


def _within(places: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return the indexes of the places in [first, end), by place."""
    found = np.flatnonzero((places >= first) & (places < end))
    some = places[found]
    return found if (some[1:] > some[:-1]).all() else found[np.argsort(some)]
