"""Values: which values of two columns differ, row by row.

Two nulls are one value, and so are two NaN. 0.0 and -0.0 are two: they read differently, and are
stored differently. Lists, structs and maps differ if one of their parts does; the order of a list
and of a map counts.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.formats.types.widening import in_type, widens

_compute: Any = pc


def differing(some: pa.Array, others: pa.Array) -> np.ndarray:
    """Return for each row whether two equally long columns differ there.

    Columns of two types are compared as the wider one, or as the second one, if the first one can
    be cast; else all values that are not null differ.
    """
    some, others = _stored(some), _stored(others)
    if widens(others.type, some.type):
        others = in_type(others, some.type)
    if not some.type.equals(others.type):
        try:
            some = some.cast(others.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return _there(some) | _there(others)
    both = _there(some) & _there(others)
    one = _there(some) ^ _there(others)
    at = np.flatnonzero(both)
    if len(at):
        one[at] = _of_values(_taken(some, at), _taken(others, at))
    return one


def _stored(column: Any) -> Any:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _there(column: pa.Array) -> np.ndarray:
    return column.is_valid().to_numpy(zero_copy_only=False)


def _taken(column: pa.Array, at: np.ndarray) -> Any:
    return column if len(at) == len(column) else column.take(at)


def _of_values(some: Any, others: Any) -> np.ndarray:
    """Return where two columns of one type and without nulls differ."""
    kind, types = some.type, pa.types
    if types.is_struct(kind):
        parts = zip(some.flatten(), others.flatten(), strict=True)
        found = np.zeros(len(some), dtype=bool)
        for one, other in parts:
            found |= differing(one, other)
        return found
    if types.is_fixed_size_list(kind):
        return _of_lists(some, others, np.full(len(some), kind.list_size))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        lengths = _lengths(some)
        found = lengths != _lengths(others)
        same = np.flatnonzero(~found)
        if len(same):
            parts = _taken(some, same), _taken(others, same)
            found[same] = _of_lists(*parts, lengths[same])
        return found
    if types.is_floating(kind):
        return _of_floats(some, others)
    if types.is_null(kind):
        return np.zeros(len(some), dtype=bool)
    return _compute.not_equal(some, others).to_numpy(zero_copy_only=False)


def _lengths(lists: Any) -> np.ndarray:
    offsets = lists.offsets.to_numpy()
    return np.diff(offsets)


def _of_lists(some: Any, others: Any, lengths: np.ndarray) -> np.ndarray:
    """Return where lists of equal lengths differ."""
    parts = differing(_items(some), _items(others))
    counts = np.concatenate([[0], np.cumsum(parts)])
    ends = np.cumsum(lengths)
    return counts[ends] > counts[ends - lengths]


def _items(lists: Any) -> pa.Array:
    if not pa.types.is_map(lists.type):
        return lists.flatten()
    offsets = lists.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    pairs = [lists.keys.slice(first, last - first), lists.items.slice(first, last - first)]
    return cast("pa.Array", pa.StructArray.from_arrays(pairs, names=["key", "value"]))


def _of_floats(some: pa.Array, others: pa.Array) -> np.ndarray:
    one, other = some.to_numpy(zero_copy_only=False), others.to_numpy(zero_copy_only=False)
    both_nan = np.isnan(one) & np.isnan(other)
    return ~both_nan & ((one != other) | (np.signbit(one) != np.signbit(other)))
