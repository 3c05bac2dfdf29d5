"""The k nearest rows by brute force, for tests of searches; and tables of vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Rows = Mapping[Any, Sequence[float] | None]


def distance(metric: str, row: Sequence[float] | None, query: Sequence[float]) -> float:
    """Return a distance as Lance defines it; NaN: the row is never found."""
    if row is None:
        return float("nan")
    if metric == "hamming":
        pairs = zip(row, query, strict=True)
        return float(sum((int(a) ^ int(b)).bit_count() for a, b in pairs))
    one, other = np.array(row, np.float64), np.array(query, np.float64)
    with np.errstate(all="ignore"):
        if metric == "l2":
            return float(np.float32(((one - other) ** 2).sum()))
        product = (one * other).sum()
        if metric == "cosine":
            product = product / np.sqrt((one**2).sum() * (other**2).sum())
        return float(np.float32(1 - product))


def nearest(
    rows: Rows,
    query: Sequence[float],
    k: int,
    metric: str = "l2",
    within: tuple[float | None, float | None] = (None, None),
) -> list[tuple[float, Any]]:
    """Return distance and key of the k nearest rows, of equals those with the lower keys."""
    lower, upper = within
    found = [(distance(metric, row, query) + 0.0, key) for key, row in rows.items()]
    kept = [
        (far, key)
        for far, key in found
        if not np.isnan(far) and (lower is None or far >= lower) and (upper is None or far < upper)
    ]
    return sorted(kept)[:k]


def found(result: Any, key: str = "id") -> list[tuple[float, Any]]:
    """Return distance and key of the rows of a search."""
    return [(row["_distance"], row[key]) for row in result]


def vectors(values: Iterable[Sequence[float] | None], size: int, kind: Any = None) -> pa.Array:
    """Return a column of vectors."""
    element = kind or pa.float32()
    if pa.types.is_float16(element):
        values = [None if v is None else [np.float16(x) for x in v] for v in values]
    return pa.array(list(values), pa.list_(element, size))


def rounded(row: Sequence[float], kind: Any) -> list[float]:
    """Return a vector as a column of that type holds it."""
    return [float(kind.to_pandas_dtype()(number)) for number in row]
