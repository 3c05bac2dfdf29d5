"""Casts: the values of a column in another type, where each of them has one there.

    numbers <-> numbers        each must come back as it was: 1.5 is no integer, 0.1 no float32
    dates, timestamps          within zones or without, any unit, if nothing is cut off
    times, durations           any unit, if nothing is cut off
    text <-> all of these      as Arrow reads and writes them: `5`, `1.20`, `2026-01-01`, `true`
    text <-> bytes             bytes must be UTF-8

What `widening` has needs no look at values. No other pair of types has a cast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.formats.types.extensions import is_extension
from siltstone.formats.types.widening import in_type, widens
from siltstone.text.spelled import is_binary

_Is = Callable[[Any], bool]
_compute: Any = pc


def _is_of(*each: _Is) -> _Is:
    return lambda kind: any(one(kind) for one in each)


_is_number = _is_of(pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_is_text = _is_of(pa.types.is_string, pa.types.is_large_string)
_is_day = _is_of(pa.types.is_date, pa.types.is_timestamp)
_has_text = _is_of(_is_number, _is_day, pa.types.is_boolean)
_FAMILIES = (_is_number, _is_text, is_binary, _is_day, pa.types.is_time, pa.types.is_duration)


class UncastError(Exception):
    """A value has none in the other type; `place` is its row, counted from 0."""

    def __init__(self, place: int) -> None:
        self.place = place
        super().__init__(f"row {place}")


def may_cast(old: Any, new: Any) -> bool:
    """Say whether values of one type may have one in another."""
    if is_extension(old) or is_extension(new) or old == new:
        return False
    if _is_text(old) or _is_text(new):
        other = new if _is_text(old) else old
        return _has_text(other) or _is_text(other) or is_binary(other)
    if pa.types.is_timestamp(old) and pa.types.is_timestamp(new):
        return (old.tz is None) == (new.tz is None)
    if _is_day(old) and _is_day(new):
        return not any(pa.types.is_timestamp(kind) and kind.tz for kind in (old, new))
    return any(each(old) and each(new) for each in _FAMILIES)


def cast_column(column: Any, kind: Any) -> Any:
    """Return a column in another type.

    Raises:
        UncastError: A value has none in that type.
    """
    if widens(column.type, kind):
        return in_type(column, kind)
    found = _cast(column, kind)
    if found is not None and _same(column, found).all():
        return found
    raise UncastError(_first_unfit(column, kind))


def _cast(column: Any, kind: Any) -> Any:
    """Return a column in another type; None: Arrow refuses a value."""
    try:
        if pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
            # Arrow wants digits for each number of the type, not for those that are there.
            column = column.cast(pa.decimal256(76, kind.scale))
        return column.cast(kind, safe=not pa.types.is_floating(kind) or _is_text(column.type))
    except pa.ArrowException:
        return None


def _same(column: Any, found: Any) -> np.ndarray:
    """Say for each value whether it comes back from the other type; of texts Arrow has looked."""
    if _is_text(column.type) and pa.types.is_floating(found.type):
        return _has_its_size(column, found)
    if _is_text(column.type) or _is_text(found.type):
        return np.ones(len(column), bool)
    back = _cast(found, column.type)
    if back is None:
        return np.zeros(len(column), bool)
    if pa.types.is_float16(column.type):  # Arrow compares none of these
        back, column = back.cast(pa.float32()), column.cast(pa.float32())
    are_equal = _compute.equal(back, column).fill_null(False)
    is_null = column.is_null(nan_is_null=pa.types.is_floating(found.type))
    return (are_equal.to_numpy(zero_copy_only=False)) | is_null.to_numpy(zero_copy_only=False)


def _has_its_size(texts: Any, found: Any) -> np.ndarray:
    """Say for each number of a text whether it is as large: only a text of a word is infinite."""
    is_infinite = np.isinf(found.to_numpy(zero_copy_only=False).astype(float))
    is_word = _compute.match_substring(texts, "inf", ignore_case=True).fill_null(True)
    return ~is_infinite | is_word.to_numpy(zero_copy_only=False)


def _first_unfit(column: Any, kind: Any) -> int:
    """Return the place of the first value that has none in another type, by halves."""
    first, end = 0, len(column)
    while end - first > 1:
        middle = (first + end) // 2
        if _fits(column.slice(first, middle - first), kind):
            first = middle
        else:
            end = middle
    return first


def _fits(column: Any, kind: Any) -> bool:
    found = _cast(column, kind)
    return found is not None and bool(_same(column, found).all())
