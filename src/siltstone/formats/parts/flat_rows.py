"""Flat rows: the columns of a row that are not nested, one behind the other, in blocks.

    block    rows     of one size each, in order
             bytes    of the texts and binaries of the first such column, of the second, ...
    row      values   one for each column, in order, packed, little-endian: numbers, bools, dates,
                      times and decimals as in Arrow; of a text or binary where it begins in the
                      block and its length, u32 each
             nulls    one bit for each column, the lowest first; the value of a null says nothing

A block begins with another row when it has `BLOCK_BYTES`, and a row of so many has one of its own.
So a read takes few bytes besides those that it wants, and knows where they are by the block alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.formats.rows import is_plain, to_user
from siltstone.formats.types import extensions
from siltstone.units import require

BLOCK_BYTES = 4 << 10
VALUE_BYTES_MAX = (1 << 32) - 1
_LENGTH_BITS = 32
_START_MASK = (1 << _LENGTH_BITS) - 1

Pieces = Sequence["bytes | memoryview"]
"""The bytes of a block, in pieces."""
Take = Callable[[Any, bytes], object]
"""Makes the Python value of what is packed in a row of a block."""


class UnfitRowsError(Exception):
    """The rows cannot be laid out so: a value has 4 GiB."""


class _Flat(msgspec.Struct, frozen=True):
    """How a column is packed: as `code` (struct) and `dtype` (NumPy).

    `take` makes its Python value; None: what is unpacked is the value.
    """

    kind: pa.DataType
    code: str
    dtype: str
    take: Take | None = None

    @property
    def is_variable(self) -> bool:
        """Whether the values lie behind the rows."""
        return is_variable(self.kind)


def is_flat(kind: pa.DataType) -> bool:
    """Say whether a column can be one of flat rows."""
    stored = extensions.storage_type(kind)
    if pa.types.is_fixed_size_binary(stored):
        return stored.byte_width > 0
    return is_variable(kind) or pa.types.is_boolean(stored) or not pa.types.is_nested(stored)


def is_variable(kind: pa.DataType) -> bool:
    """Say whether the values of a column have lengths of their own."""
    stored = extensions.storage_type(kind)
    return pa.types.is_binary(stored) or pa.types.is_string(stored) or _is_large(stored)


def _is_large(stored: pa.DataType) -> bool:
    return pa.types.is_large_binary(stored) or pa.types.is_large_string(stored)


class FlatRows:
    """The flat columns of one schema. Immutable."""

    def __init__(self, schema: pa.Schema) -> None:
        """`schema` has flat columns alone."""
        self.schema, self.names = schema, tuple(schema.names)
        self._columns = [_flat(field.type) for field in schema]
        codes = "".join(column.code for column in self._columns)
        null_bytes = (len(self._columns) + 7) // 8
        self._struct = struct.Struct(f"<{codes}{null_bytes}s")
        self._no_nulls = bytes(null_bytes)
        fields = [(str(at), column.dtype) for at, column in enumerate(self._columns)]
        self._dtype = np.dtype([*fields, ("nulls", f"V{null_bytes}")])
        require(self._dtype.itemsize == self._struct.size, "both say how a row is packed")
        self._taken = [
            (at, name, column.take)
            for at, (name, column) in enumerate(zip(self.names, self._columns, strict=True))
            if column.take is not None
        ]

    # reading

    def row(self, block: bytes, index: int) -> dict[str, object]:
        """Return one row of a block as Python values.

        Raises:
            OverflowError, ValueError: Python has no value for one.
        """
        packed = self._struct.unpack_from(block, index * self._struct.size)
        row = dict(zip(self.names, packed, strict=False))  # the last one is the nulls
        if packed[-1] != self._no_nulls:
            return self._with_nulls(row, packed, block)
        for at, name, take in self._taken:
            row[name] = take(packed[at], block)
        return row

    def _with_nulls(
        self, row: dict[str, object], packed: Sequence[Any], block: bytes
    ) -> dict[str, object]:
        nulls = int.from_bytes(packed[-1], "little")
        for at, name, take in self._taken:
            row[name] = None if nulls >> at & 1 else take(packed[at], block)
        for at, name in enumerate(self.names):
            if nulls >> at & 1:
                row[name] = None
        return row

    def batch(self, rows: Sequence[tuple[bytes, int]], names: Sequence[str]) -> list[pa.Array]:
        """Return columns of some rows, each given by its block and its index there."""
        size = self._struct.size
        packed = b"".join(block[at * size : (at + 1) * size] for block, at in rows)
        values = np.frombuffer(packed, self._dtype)
        nulls = np.unpackbits(
            np.ascontiguousarray(values["nulls"]).view(np.uint8).reshape(len(rows), -1),
            axis=1,
            bitorder="little",
        )
        found: list[pa.Array] = []
        for name in names:
            at = self.names.index(name)
            column = self._columns[at]
            field, is_null = values[str(at)], nulls[:, at]
            if column.is_variable:
                found.append(_variable_array(column.kind, field, is_null, rows))
            else:
                found.append(_fixed_array(column.kind, np.ascontiguousarray(field), is_null))
        return found

    # writing

    def blocks(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Pieces]]:
        """Yield the blocks of a batch: the index of the first row of each, and its bytes.

        Raises:
            UnfitRowsError: A value is too long.
        """
        count, size = batch.num_rows, self._dtype.itemsize
        if not count:
            return
        rows = np.zeros(count, self._dtype)
        columns = [extensions.unwrapped(batch.column(name)) for name in self.names]
        variable = [_Texts.of(at, c) for at, c in enumerate(columns) if is_variable(c.type)]
        for at, column in enumerate(columns):
            if not self._columns[at].is_variable:
                rows[str(at)] = _fixed_values(column, self._columns[at].dtype)
        _put_nulls(rows, columns)
        lengths = sum((np.diff(each.ends) for each in variable), np.zeros(count, np.int64))
        firsts = _firsts(lengths + size)
        lasts = np.append(firsts[1:], count)
        _put_starts(rows, variable, firsts, lasts)
        raw = memoryview(cast("Any", rows.view(np.uint8))).cast("B")
        heaps = [(each.data, each.ends[firsts].tolist(), each.ends[lasts].tolist())
                 for each in variable]  # fmt: skip
        for block, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
            texts = [data[starts[block] : ends[block]] for data, starts, ends in heaps]
            yield first, [raw[first * size : last * size], *texts]


class _Texts(msgspec.Struct, frozen=True):
    """The values of a variable column: value i is `data[ends[i]:ends[i + 1]]`."""

    at: int
    ends: np.ndarray
    data: memoryview

    @classmethod
    def of(cls, at: int, column: pa.Array) -> _Texts:
        """Return the values of a column of texts or binaries."""
        dtype = np.int64 if _is_large(column.type) else np.int32
        _, ends, data = cast("list[Any]", column.buffers())
        found = np.frombuffer(ends, dtype, column.offset + len(column) + 1)[column.offset :]
        return cls(at, found.astype(np.int64), memoryview(b"" if data is None else data))


def _put_starts(
    rows: np.ndarray, variable: Sequence[_Texts], firsts: np.ndarray, lasts: np.ndarray
) -> None:
    """Put into each row where its texts begin in the block, and their lengths."""
    if not variable:
        return
    block_of = np.repeat(np.arange(len(firsts)), lasts - firsts)
    begin = (lasts - firsts) * rows.dtype.itemsize  # of the bytes of a column, in each block
    for each in variable:
        starts = each.ends[:-1] + (begin - each.ends[firsts])[block_of]
        lengths = np.diff(each.ends)
        begin = begin + each.ends[lasts] - each.ends[firsts]
        if max(starts.max(), lengths.max()) > VALUE_BYTES_MAX:
            raise UnfitRowsError
        rows[str(each.at)] = starts | lengths << _LENGTH_BITS


def _put_nulls(rows: np.ndarray, columns: Sequence[pa.Array]) -> None:
    if not any(column.null_count for column in columns):
        return
    bits = np.zeros((len(rows), rows.dtype["nulls"].itemsize * 8), bool)
    for at, column in enumerate(columns):
        if column.null_count:
            bits[:, at] = column.is_null().to_numpy(zero_copy_only=False)
    packed = np.packbits(bits, axis=1, bitorder="little")
    rows["nulls"] = packed.view(rows.dtype["nulls"]).reshape(-1)


def _firsts(sizes: np.ndarray) -> np.ndarray:
    """Return the first row of each block."""
    starts = np.cumsum(sizes) - sizes
    block, is_large = starts // BLOCK_BYTES, sizes >= BLOCK_BYTES
    begins = np.ones(len(sizes), bool)
    begins[1:] = (block[1:] != block[:-1]) | is_large[1:] | is_large[:-1]
    return np.flatnonzero(begins)


def _fixed_values(column: pa.Array, dtype: str) -> np.ndarray:
    if pa.types.is_boolean(column.type):
        return column.cast(pa.uint8()).fill_null(0).to_numpy()
    values = cast("list[Any]", column.buffers())[1]
    count = column.offset + len(column)
    return np.frombuffer(values, dtype, count)[column.offset :]


def _fixed_array(kind: pa.DataType, values: np.ndarray, is_null: np.ndarray) -> pa.Array:
    stored = extensions.storage_type(kind)
    if pa.types.is_boolean(stored):
        values = np.packbits(values, bitorder="little")
    buffers = [_validity(is_null), pa.py_buffer(values.tobytes())]
    found = pa.Array.from_buffers(stored, len(is_null), cast("Any", buffers))
    return extensions.wrapped(found, kind)


def _variable_array(
    kind: pa.DataType, field: np.ndarray, is_null: np.ndarray, rows: Sequence[tuple[bytes, int]]
) -> pa.Array:
    stored = extensions.storage_type(kind)
    values = [
        b"" if gone else _bytes_of(each, block)
        for each, gone, (block, _) in zip(field.tolist(), is_null.tolist(), rows, strict=True)
    ]
    dtype = np.int64 if _is_large(stored) else np.int32
    ends = np.cumsum([0, *map(len, values)])
    if ends[-1] > np.iinfo(dtype).max:
        raise UnfitRowsError
    buffers = [
        _validity(is_null),
        pa.py_buffer(ends.astype(dtype).tobytes()),
        pa.py_buffer(b"".join(values)),
    ]
    found = pa.Array.from_buffers(stored, len(rows), cast("Any", buffers))
    return extensions.wrapped(found, kind)


def _validity(is_null: np.ndarray) -> pa.Buffer | None:
    if not is_null.any():
        return None
    return pa.py_buffer(np.packbits(is_null == 0, bitorder="little").tobytes())


def _bytes_of(packed: int, block: bytes) -> bytes:
    start = packed & _START_MASK
    return block[start : start + (packed >> _LENGTH_BITS)]


def _text_of(packed: int, block: bytes) -> str:
    start = packed & _START_MASK
    return str(block[start : start + (packed >> _LENGTH_BITS)], "utf-8")


_CODES: tuple[tuple[Callable[[pa.DataType], bool], str, str], ...] = (
    (pa.types.is_boolean, "?", "u1"),
    (pa.types.is_int8, "b", "i1"),
    (pa.types.is_uint8, "B", "u1"),
    (pa.types.is_int16, "h", "<i2"),
    (pa.types.is_uint16, "H", "<u2"),
    (pa.types.is_int32, "i", "<i4"),
    (pa.types.is_uint32, "I", "<u4"),
    (pa.types.is_int64, "q", "<i8"),
    (pa.types.is_uint64, "Q", "<u8"),
    (pa.types.is_float16, "e", "<f2"),
    (pa.types.is_float32, "f", "<f4"),
    (pa.types.is_float64, "d", "<f8"),
    (pa.types.is_date32, "i", "<i4"),
    (pa.types.is_time32, "i", "<i4"),
    (pa.types.is_date64, "q", "<i8"),
    (pa.types.is_time64, "q", "<i8"),
    (pa.types.is_timestamp, "q", "<i8"),
    (pa.types.is_duration, "q", "<i8"),
    (pa.types.is_decimal128, "16s", "V16"),
    (pa.types.is_decimal256, "32s", "V32"),
)


def _flat(kind: pa.DataType) -> _Flat:
    stored = extensions.storage_type(kind)
    if is_variable(kind):
        is_text = pa.types.is_string(stored) or pa.types.is_large_string(stored)
        return _Flat(kind, "Q", "<u8", _text_of if is_text else _bytes_of)
    if pa.types.is_fixed_size_binary(stored) and not pa.types.is_decimal(stored):
        width = stored.byte_width
        take = None if stored == kind else _converted(kind)
        return _Flat(kind, f"{width}s", f"V{width}", take)
    code, dtype = next((code, dtype) for is_of, code, dtype in _CODES if is_of(stored))
    if pa.types.is_decimal(stored):
        return _Flat(kind, code, dtype, _decimal(kind))
    return _Flat(kind, code, dtype, None if is_plain(kind) else _converted(kind))


def _converted(kind: pa.DataType) -> Take:
    return lambda value, _: to_user(value, kind)


def _decimal(kind: pa.DataType) -> Take:
    return lambda value, _: to_user(int.from_bytes(value, "little", signed=True), kind)
