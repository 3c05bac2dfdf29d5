"""Widening: which types a column may get without a look at its rows, and their values in both.

    int8 -> .. -> int64, uint8 -> .. -> uint64, unsigned -> a signed type of more bits
    integers         -> float and decimal types that hold each of them
    float16 -> float32 -> float64
    decimal(p, s)    -> decimal(q, t) with as many digits before the point and behind it, or more
    date32           -> date64, timestamp[s], timestamp[ms]
    time32[s] -> time32[ms] -> time64[us] -> time64[ns]
    timestamp of a zone -> of another zone
    string -> large_string, binary -> large_binary, binary(n) -> both of these

Each value has one in the wider type, and comes back from it as it was. So rows that are stored in
one of the two are read in the other: the past in the narrow type, what is not rewritten yet in the
wide one. Units of timestamps are not among them: seconds have years that microseconds lack.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from siltstone.formats.rows import from_storage_values, storage_values

_DIGITS = {
    pa.int8(): 3, pa.uint8(): 3, pa.int16(): 5, pa.uint16(): 5, pa.int32(): 10, pa.uint32(): 10,
    pa.int64(): 19, pa.uint64(): 20,
}  # fmt: skip
_FRACTION_BITS = {16: 11, 32: 24, 64: 53}
_TIMES = (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
_OTHERS = {
    (pa.date32(), pa.date64()),
    (pa.date32(), pa.timestamp("s")),
    (pa.date32(), pa.timestamp("ms")),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
}


def _is_decimal(kind: Any) -> bool:
    return pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind)


@lru_cache(maxsize=4096)
def widens(old: Any, new: Any) -> bool:
    """Say whether a column of one type may get the other without a look at its rows."""
    if old == new:
        return False
    if pa.types.is_integer(old):
        return _has_all_integers(old, new)
    if pa.types.is_floating(old):
        return pa.types.is_floating(new) and old.bit_width < new.bit_width
    if _is_decimal(old):
        return _is_decimal(new) and _has_all_decimals(old, new)
    return (old, new) in _OTHERS or _is_time_or_bytes(old, new)


def _is_time_or_bytes(old: Any, new: Any) -> bool:
    if pa.types.is_timestamp(old) and pa.types.is_timestamp(new):
        return old.unit == new.unit and None not in (old.tz, new.tz)
    if pa.types.is_fixed_size_binary(old):
        return new in (pa.binary(), pa.large_binary())
    return old in _TIMES and new in _TIMES and _TIMES.index(old) < _TIMES.index(new)


def _has_all_integers(old: Any, new: Any) -> bool:
    if pa.types.is_integer(new):
        same = pa.types.is_signed_integer(old) == pa.types.is_signed_integer(new)
        fits = same or pa.types.is_unsigned_integer(old)
        return fits and old.bit_width < new.bit_width
    if pa.types.is_floating(new):
        return old.bit_width <= _FRACTION_BITS[new.bit_width]
    return _is_decimal(new) and new.scale >= 0 and new.precision - new.scale >= _DIGITS[old]


def _has_all_decimals(old: Any, new: Any) -> bool:
    return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale


@lru_cache(maxsize=4096)
def is_pair(one: Any, other: Any) -> bool:
    """Say whether one of two types is a wider one of the other; no type is one of itself."""
    return widens(one, other) or widens(other, one)


def in_type(column: pa.Array, kind: pa.DataType) -> Any:
    """Return a column in the type in which it is shown, which is wider or narrower, or its own.

    A value that the narrow type lacks becomes another one, or null, and nobody is shown it: it came
    after the type was changed, and beside those that are asked for.
    """
    stored = column.type
    if stored == kind or not is_pair(stored, kind):
        return column
    try:
        return column.cast(kind, safe=False)
    except pa.ArrowInvalid:  # bytes of another size; digits that a narrow decimal lacks
        return pa.concat_arrays([_one_in_type(column[n : n + 1], kind) for n in range(len(column))])


def _one_in_type(column: Any, kind: Any) -> Any:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)


@lru_cache(maxsize=4096)
def value_in_type(old: pa.DataType, new: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what turns a storage value of one type into one of the other; None: they are equal."""
    if not is_pair(old, new) or _are_alike(old, new):
        return None

    def converted(value: Any) -> Any:
        if value is None:
            return None
        return storage_values(in_type(from_storage_values([value], old), new))[0]

    return converted


def _are_alike(old: Any, new: Any) -> bool:
    """Say whether values of two types of a pair have the same form in a row."""
    if pa.types.is_integer(old):
        return pa.types.is_integer(new)
    is_text = pa.types.is_string(old) or pa.types.is_binary(old)
    return is_text or pa.types.is_fixed_size_binary(old)
