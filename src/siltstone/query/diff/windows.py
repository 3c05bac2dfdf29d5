"""Windows: the rows of two readers of one key, pair by pair of parts with the same keys' range.

    few changes    the keys that changed, in order, looked up in both
    else           both read in the order of the key, up to the last key that both have shown

Each key is in one window. What is held: a batch of each side, and the keys of few changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.order.key_range import KeyRange
from siltstone.engine.order.ordered_rows import Page
from siltstone.engine.read.read_union import KeyedReader
from siltstone.formats.keys import Key, KeyCodec
from siltstone.formats.order.key_bytes import ByteKeys

LOOKED_UP = 8_192
"""So many keys are looked up at once."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows and their keys as bytes, which ascend; each key once."""

    rows: pa.Table
    keys: ByteKeys

    def upto(self, key: bytes) -> tuple[KeyedRows, KeyedRows]:
        """Return the rows up to a key, and those above it."""
        cut = self.keys.searchsorted(key, "right")
        behind = KeyedRows(self.rows.slice(cut), self.keys[cut:])
        return KeyedRows(self.rows.slice(0, cut), self.keys[:cut]), behind


Window = tuple[KeyedRows, KeyedRows]


def looked_up(
    keys: Sequence[Key], some: KeyedReader | None, others: KeyedReader | None, codec: KeyCodec
) -> Iterator[Window]:
    """Yield the rows of some keys, which are in order."""
    for start in range(0, len(keys), LOOKED_UP):
        part = keys[start : start + LOOKED_UP]
        wanted = codec.ordered_of(codec.batch(part)).array
        window = _rows_of(part, wanted, some), _rows_of(part, wanted, others)
        if any(len(each.keys) for each in window):  # else they were made and deleted in between
            yield window


def _rows_of(keys: Sequence[Key], wanted: pa.Array, reader: KeyedReader | None) -> KeyedRows:
    if reader is None:
        return KeyedRows(pa.table({}), ByteKeys(pa.array([], pa.binary())))
    schema, codec = reader.table_schema.arrow, reader.table_schema.codec
    rows = pa.Table.from_batches(reader.looked_up(keys, schema.names), schema)
    found = codec.ordered_of(rows)
    kept = pc.is_in(found.array, value_set=wanted)  # others may have their codes
    order = found.argsort()
    order = order[kept.to_numpy(zero_copy_only=False)[order]]
    return KeyedRows(rows.take(order), found[order])


def in_order(some: KeyedReader | None, others: KeyedReader | None) -> Iterator[Window]:
    """Yield all rows of both."""
    one, other = _Side(some), _Side(others)
    while True:
        one.fill()
        other.fill()
        ends = [side.rows.keys[-1] for side in (one, other) if len(side.rows.keys)]
        if not ends:
            return
        upto = min(ends)
        yield one.taken(upto), other.taken(upto)


class _Side:
    """One of the readers, and what was read of it and not given yet. One thread."""

    def __init__(self, reader: KeyedReader | None) -> None:
        self.rows = KeyedRows(pa.table({}), ByteKeys(pa.array([], pa.binary())))
        self._codec = None if reader is None else reader.table_schema.codec
        self._batches = iter(()) if reader is None else reader.in_order(KeyRange(), Page())

    def fill(self) -> None:
        while not len(self.rows.keys) and (batch := next(self._batches, None)) is not None:
            assert self._codec is not None
            rows = pa.Table.from_batches([batch])
            self.rows = KeyedRows(rows, self._codec.ordered_of(rows))

    def taken(self, upto: bytes) -> KeyedRows:
        found, self.rows = self.rows.upto(upto)
        return found


def in_key_order(keys: set[Key], codec: KeyCodec) -> list[Key]:
    """Return keys in their order."""
    given = list(keys)
    order = codec.ordered_of(codec.batch(given)).argsort() if given else np.array([], np.int64)
    return [given[at] for at in order.tolist()]


def whole(column: pa.ChunkedArray) -> Any:
    """Return a column as one array; a single chunk is not copied."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
