"""Layout: how a batch lies in a slot, and what the JVM is told about it.

    i32 rows, i32 columns, and of each column five i64:
        nulls     how many values are null
        validity  where its bits begin; -1 if no value is null
        bit       which bit of the first byte is that of the first row, of booleans' values, too
        values    where its values begin; of texts and binaries their offsets, i32
        bytes     of texts and binaries: where offset 0 would be; may lie before the slot

Places are bytes from the beginning of the region. Values are as Arrow has them, so nothing is
converted; only the bytes that the rows of the batch use are copied.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from siltstone.spark.daemon.regions import ALIGNMENT

_OFFSET = struct.Struct("<i")
_FLAT = (pa.types.is_primitive, pa.types.is_string, pa.types.is_binary, pa.types.is_decimal128)


def is_flat(schema: pa.Schema) -> bool:
    """Return whether all columns can lie in a slot: none has a type made of others."""
    return all(any(is_of(field.type) for is_of in _FLAT) for field in schema)


def bytes_of(batch: pa.RecordBatch) -> int:
    """Return how many bytes of a slot a batch takes, at most."""
    # Of each column up to three buffers, each from a byte of its own and to a place of its own.
    return batch.nbytes + batch.num_columns * 3 * (ALIGNMENT + 16)


def fitting(batch: pa.RecordBatch, slot_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in pieces that fit into a slot; a row that does not, alone."""
    if batch.num_rows <= 1 or bytes_of(batch) <= slot_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from fitting(batch.slice(0, half), slot_bytes)
    yield from fitting(batch.slice(half), slot_bytes)


def put(batch: pa.RecordBatch, address: int, first: int) -> bytes:
    """Copy a batch into the slot that begins at byte `first` of the region at `address`.

    Return what the JVM is told. The slot has `bytes_of(batch)` bytes.
    """
    filling = _Filling(address, first)
    numbers = [number for column in batch.columns for number in filling.column(column)]
    return struct.pack(f"<2i{len(numbers)}q", batch.num_rows, batch.num_columns, *numbers)


class _Filling:
    """Where the next buffer goes."""

    def __init__(self, address: int, first: int) -> None:
        self._address, self._at = address, first

    def column(self, array: Any) -> tuple[int, int, int, int, int]:
        """Copy the values of a column; return its five numbers."""
        offset, rows, buffers = array.offset, len(array), array.buffers()
        nulls, validity = array.null_count, -1
        if nulls:
            validity = self._bits(buffers[0], offset, rows)
        if pa.types.is_boolean(array.type):
            return nulls, validity, offset & 7, self._bits(buffers[1], offset, rows), 0
        if len(buffers) == 3:
            return nulls, validity, offset & 7, *self._texts(buffers, offset, rows)
        width = array.type.byte_width
        values = self._copy(buffers[1], offset * width, rows * width)
        return nulls, validity, offset & 7, values, 0

    def _bits(self, buffer: pa.Buffer, offset: int, rows: int) -> int:
        return self._copy(buffer, offset >> 3, ((offset & 7) + rows + 7) >> 3)

    def _texts(self, buffers: Any, offset: int, rows: int) -> tuple[int, int]:
        offsets = buffers[1]
        (first,) = _OFFSET.unpack_from(offsets, 4 * offset)
        (end,) = _OFFSET.unpack_from(offsets, 4 * (offset + rows))
        values = self._copy(offsets, 4 * offset, 4 * (rows + 1))
        return values, self._copy(buffers[2], first, end - first) - first

    def _copy(self, buffer: pa.Buffer | None, first: int, size: int) -> int:
        at = self._at
        if buffer is not None and size:
            ctypes.memmove(self._address + at, buffer.address + first, size)  # without the GIL
        self._at = -(-(at + size) // ALIGNMENT) * ALIGNMENT
        return at
