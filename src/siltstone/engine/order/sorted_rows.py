"""Sorted rows: rows in the order of their keys, of a scan that gives them in no order.

    a scan of the range ──▶ the lowest rows that fit `_BYTES_MAX`, sorted ──▶ another scan, from the
                            last of them on, until one has kept all that it saw

So its memory is bounded, and it reads a table once for each `_BYTES_MAX` of what it returns. For
filters that keep few rows, and where keys have no order: in no run, or too many of them above base.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.filter.filters import Filter
from siltstone.engine.order.key_range import KeyRange
from siltstone.formats.keys import Key, KeyCodec
from siltstone.formats.types import extensions

_BYTES_MAX = 32 << 20
_ROWS_AHEAD = 8_192


def sorted_rows(
    scan: Any,
    table_schema: TableSchema,
    columns: Sequence[str],
    wanted: Filter | None,
    keys: KeyRange,
    rows_max: int | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the first `rows_max` rows of a range (None: all) that a filter keeps, in order.

    Args:
        scan: Returns rows in no order: see `ordered_rows.Scan`.
        table_schema: The columns of the table.
        columns: Those to return.
        wanted: The filter.
        keys: The range.
        rows_max: How many of the first rows.
    """
    codec, left = table_schema.codec, rows_max
    read = [*columns, *(name for name in codec.names if name not in columns)]
    while True:
        lowest = _Lowest(codec, keys, left)
        for batch in scan(read, wanted):
            lowest.add(batch)
        rows = lowest.rows(table_schema.fields(read))
        for batch in rows.combine_chunks().to_batches():
            yield batch if len(read) == len(columns) else batch.select(list(columns))
        left = None if left is None else left - rows.num_rows
        if not lowest.is_cut or left == 0:
            return
        keys = keys.after(_last_key(rows, codec))


class _Lowest:
    """The first rows in order of those that were added, about `_BYTES_MAX` of them. One thread."""

    def __init__(self, codec: KeyCodec, keys: KeyRange, rows_max: int | None) -> None:
        self._codec, self._keys, self._rows_max = codec, keys, rows_max
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self.is_cut = False
        """Whether rows were dropped that are not beyond `rows_max`."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take those rows that are in the range; drop the last ones if they are too many."""
        batch = self._keys.keep(batch, self._codec)
        if not batch.num_rows:
            return
        self._held.append(batch)
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        rows_max = self._rows if self._rows_max is None else self._rows_max
        if self._bytes > 2 * _BYTES_MAX or self._rows > 2 * rows_max + _ROWS_AHEAD:
            self._cut(self._sorted())

    def rows(self, fields: pa.Schema) -> pa.Table:
        """Return the rows in order."""
        if not self._held:
            return fields.empty_table()
        found = self._sorted()
        return found if self._rows_max is None else found.slice(0, self._rows_max)

    def _sorted(self) -> pa.Table:
        rows = pa.Table.from_batches(self._held)
        return rows.take(key_order(rows, self._codec, descending=self._keys.descending))

    def _cut(self, rows: pa.Table) -> None:
        fit = max(1, _BYTES_MAX * rows.num_rows // max(1, rows.nbytes))
        if self._rows_max is not None and self._rows_max <= fit:
            fit = self._rows_max
        else:
            self.is_cut |= fit < rows.num_rows
        if fit >= rows.num_rows:
            return
        kept = rows.slice(0, fit)
        self._keys = self._keys.upto(_last_key(kept, self._codec))  # else rows come with a gap
        self._held, self._rows, self._bytes = kept.to_batches(), kept.num_rows, kept.nbytes


def key_order(rows: pa.Table, codec: KeyCodec, *, descending: bool) -> pa.Array:
    """Return the places of some rows in the order of their keys."""
    arrays = [_plain(rows.column(name)) for name in codec.names]
    names = [str(place) for place in range(len(arrays))]
    keys: Any = [(name, "descending" if descending else "ascending") for name in names]
    return pc.sort_indices(pa.table(arrays, names=names), sort_keys=keys)


def _last_key(rows: pa.Table, codec: KeyCodec) -> Key:
    return codec.keys(rows.slice(rows.num_rows - 1))[0]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [extensions.unwrapped(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks)
