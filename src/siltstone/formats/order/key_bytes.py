r"""Key bytes: keys as bytes whose order is the order of keys.

    one text or bytes    its bytes, texts in UTF-8
    fixed-size, UUID     its bytes
    numbers              big-endian, 8 bytes (a decimal: 16), the sign turned; uint64 as it is
    several columns      one behind the other; in texts and bytes that are not the last one, each
                         00 becomes 00 FF, and 00 01 ends them: so a part ends below a longer one

They compare byte by byte, and a key before those that it begins. Behind a key k the next bytes are
k and a 00: so "above k" is "from k 00 on".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_compute: Any = pc
_SIGN = np.uint64(1 << 63)
_NUMBER_BYTES, _DECIMAL_BYTES = 8, 16


class TurnedKey:
    """A key that compares the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: bytes) -> None:
        self.key = key

    def __lt__(self, other: TurnedKey) -> bool:
        return other.key < self.key


class ByteKeys:
    """Keys as bytes, one for each row: what codes are to keys whose order their codes give.

    It is indexed, searched and sorted as an array of codes is; `~` turns their order, as it does
    with codes. Immutable.
    """

    __slots__ = ("array", "is_turned")

    def __init__(self, array: pa.BinaryArray, *, is_turned: bool = False) -> None:
        self.array, self.is_turned = array, is_turned

    def __len__(self) -> int:
        return len(self.array)

    def __invert__(self) -> ByteKeys:
        return ByteKeys(self.array, is_turned=not self.is_turned)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.array.nbytes

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice | np.ndarray) -> ByteKeys: ...
    def __getitem__(self, at: int | slice | np.ndarray) -> Any:
        """Return one key, which compares as the others here; or those of a slice, mask or index."""
        if isinstance(at, slice):
            return self._of(_sliced(self.array, at))
        if isinstance(at, np.ndarray):
            chosen: Any = pa.array(at)
            is_mask = at.dtype == np.bool_
            return self._of(self.array.filter(chosen) if is_mask else self.array.take(chosen))
        key = self.array[at].as_py()
        return TurnedKey(key) if self.is_turned else key

    def searchsorted(self, bound: Any, side: str = "left") -> int:
        """Return how many keys, which ascend, are below a bound (`right`: at it, too)."""
        return (bisect_right if side == "right" else bisect_left)(cast("Any", self), bound)

    def argsort(self, kind: str | None = None) -> np.ndarray:
        """Return the indexes of the keys in their order; what is in order is found fast."""
        del kind
        order = "descending" if self.is_turned else "ascending"
        return _numbers(_compute.array_sort_indices(self.array, order=order))

    def is_descent(self) -> np.ndarray:
        """Say of each key but the first whether it is below the one before."""
        if len(self) < 2:
            return np.zeros(0, bool)
        later, before = self.array.slice(1), self.array.slice(0, len(self) - 1)
        compare = _compute.greater if self.is_turned else _compute.less
        return compare(later, before).to_numpy(zero_copy_only=False)

    def _of(self, array: pa.Array) -> ByteKeys:
        return ByteKeys(cast("pa.BinaryArray", array), is_turned=self.is_turned)


# Not `pa.array`: it imports pandas, in 0.2 s.
NO_KEYS = ByteKeys(pa.nulls(0, pa.binary()))
Ranks = TypeVar("Ranks", np.ndarray, ByteKeys)
"""What rows are sorted by: codes, or keys as bytes."""


def joined_ranks(parts: Sequence[Ranks]) -> Ranks:
    """Return ranks one behind the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, ByteKeys):
        keys = cast("Sequence[ByteKeys]", parts)
        array = pa.concat_arrays([each.array for each in keys])
        return cast("Any", ByteKeys(array, is_turned=first.is_turned))
    return np.concatenate(cast("Sequence[np.ndarray]", parts))


def bytes_scalar(data: bytes) -> pa.BinaryScalar:
    """Return bytes as Arrow computes with them."""
    return pa.scalar(data, pa.binary())  # not when modules are loaded: it imports pandas, in 0.2 s


def descents(ranks: np.ndarray | ByteKeys) -> np.ndarray:
    """Say of each rank but the first whether it is below the one before."""
    return ranks.is_descent() if isinstance(ranks, ByteKeys) else ranks[1:] < ranks[:-1]


def key_bytes(
    columns: Sequence[pa.Array], codes: Callable[[pa.Array], np.ndarray], *, is_whole: bool = True
) -> ByteKeys:
    """Return the keys in some columns, none of them null, as bytes.

    Args:
        columns: What the key columns lie in (`keys.KeyColumns`).
        codes: Returns the numbers of a column of whole numbers, dates, moments or bools.
        is_whole: Not if other columns follow: then these are what keys begin with.
    """
    last = len(columns) - is_whole
    parts = [_part(each, codes, is_last=at == last) for at, each in enumerate(columns)]
    if len(parts) == 1:
        return ByteKeys(parts[0])
    return ByteKeys(_compute.binary_join_element_wise(*parts, bytes_scalar(b"")))


def _part(
    column: pa.Array, codes: Callable[[pa.Array], np.ndarray], *, is_last: bool
) -> pa.BinaryArray:
    kind: Any = column.type
    if pa.types.is_fixed_size_binary(kind):
        return cast("Any", column.cast(pa.binary()))
    if pa.types.is_decimal(kind):
        return _of_decimals(column)
    if not _is_variable(kind):
        return _of_numbers(codes(column), is_signed=not pa.types.is_uint64(kind))
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    found = column.cast(pa.large_binary()).cast(pa.binary()) if is_large else column
    found = cast("pa.BinaryArray", found.cast(pa.binary()))
    return found if is_last else _ended(found)


def _ended(column: pa.BinaryArray) -> pa.BinaryArray:
    """Return bytes with an end that is below all that may follow in a longer one."""
    escaped = _compute.replace_substring(column, pattern=b"\x00", replacement=b"\x00\xff")
    return _compute.binary_join_element_wise(escaped, bytes_scalar(b"\x00\x01"), bytes_scalar(b""))


def _of_numbers(numbers: np.ndarray, *, is_signed: bool) -> pa.BinaryArray:
    words = numbers.view(np.uint64)
    words = words ^ _SIGN if is_signed else words
    return _of_words(words.astype(">u8").tobytes(), _NUMBER_BYTES, len(numbers))


def _of_decimals(column: pa.Array) -> pa.BinaryArray:
    width = column.type.byte_width
    first = column.offset * width
    stored = np.frombuffer(cast("Any", column.buffers()[1]), np.uint8)
    turned = stored[first : first + len(column) * width].reshape(-1, width)[:, ::-1].copy()
    turned[:, 0] ^= 0x80
    return _of_words(turned.tobytes(), width, len(column))


def decimal_bytes(number: int) -> bytes:
    """Return what a decimal of 128 bits is as bytes, by its whole number without a point."""
    return (number + (1 << 8 * _DECIMAL_BYTES - 1)).to_bytes(_DECIMAL_BYTES, "big")


def _of_words(data: bytes, width: int, count: int) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(data)]
    found = pa.Array.from_buffers(pa.binary(width), count, cast("Any", buffers))
    return cast("Any", found.cast(pa.binary()))


def _is_variable(kind: pa.DataType) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return is_text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _sliced(array: pa.BinaryArray, cut: slice) -> pa.Array:
    first, end, step = cut.indices(len(array))
    if step == 1:
        return array.slice(first, max(0, end - first))
    return array.take(cast("Any", pa.array(np.arange(first, end, step))))


def _numbers(found: pa.Array) -> np.ndarray:
    # Not `to_numpy`: it imports pandas, in 0.2 s.
    return np.from_dlpack(cast("Any", found)).view(np.int64)
