"""Distances: how far vectors are from each other, exactly as Lance defines it.

    l2        the square of the distance of two points
    cosine    1 - the cosine of the angle; none to a vector of zeros
    dot       1 - the product
    hamming   the number of different bits of two lists of bytes

All rows that a search returns are measured by `measured`, wherever they are: in float64, rounded to
float32. So a row has one distance, before and after it is merged, with every index and without.
`roughly` is one product of matrices over many rows; its error has a bound, and the rows that may be
among the nearest by it are measured.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from siltstone.engine.columns.row_vectors import VectorBlock
from siltstone.storage.tables.values import Lengths

_HELD_MIN, _HELD_MAX = 1e-15, 1e15
"""Of lengths between these float32 holds the squares, and the product of two."""
Roughly = tuple[np.ndarray, np.ndarray]
"""Least and most distances of the rows of a block."""


def measured(metric: str, matrix: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the distance of each row from one vector, as float32; NaN: it has none."""
    if metric == "hamming":
        return np.bitwise_count(matrix ^ query).sum(axis=1, dtype=np.int64).astype(np.float32)
    rows, asked = matrix.astype(np.float64), query.astype(np.float64)
    with np.errstate(all="ignore"):
        if metric == "l2":
            found = ((rows - asked) ** 2).sum(axis=1)
        else:
            found = (rows * asked).sum(axis=1)  # a product of matrices rounds by the place of a row
            if metric == "cosine":
                found = found / np.sqrt((rows**2).sum(axis=1) * (asked**2).sum())
            found = 1 - found
        return found.astype(np.float32) + np.float32(0)  # one zero


def roughly(metric: str, block: VectorBlock, query: np.ndarray) -> Roughly:
    """Return between which bounds the distances of the rows of a block are; NaN: unknown.

    The rounding errors of a product of n numbers are at most n units in the last place of the
    product of the lengths.
    """
    if metric == "hamming":
        found = measured(metric, block.matrix, query)
        return found, found
    matrix, squares = block.matrix, block.squares
    error = np.finfo(matrix.dtype).eps * (matrix.shape[1] + 8)
    held = np.finfo(np.float32)
    with np.errstate(all="ignore"):
        # As fast as `matrix @ query`, and without the threads of BLAS, which keep cores busy while
        # they wait: searches of eight threads took twice their time.
        products, square = np.vecdot(matrix, query), query @ query
        if metric == "l2":
            found = squares - 2 * products + square
            slack = 2 * error * (squares + square)
        else:
            lengths = np.sqrt(squares) * np.sqrt(square)
            found = 1 - (products / lengths if metric == "cosine" else products)
            slack = 4 * error * (1 if metric == "cosine" else 1 + lengths)
            if metric == "cosine":
                found[~(_are_held(squares) & _are_held(square))] = np.nan
        found[~(np.abs(found) <= held.max)] = np.nan  # as float32 they are equal
        slack = slack + held.eps * np.abs(found) + held.tiny  # `measured` rounds
        return found - slack, found + slack


def _are_held(squares: Any) -> Any:
    """Return which squares of lengths are so far from the ends of float32 that products are."""
    return (squares >= _HELD_MIN**2) & (squares <= _HELD_MAX**2)


def error_of_float32(metric: str, queries: np.ndarray, lengths: Lengths) -> float:
    """Return by how much a product in float32 may miss a distance; inf: by any number.

    `metric` is cosine or dot: for l2 the error is a share of the distance. `lengths` are of rows.
    """
    with np.errstate(over="ignore"):
        own = np.sqrt((queries.astype(np.float64) ** 2).sum(axis=1))
    error = 4 * float(np.finfo(np.float32).eps) * (queries.shape[1] + 8)
    if metric == "dot":
        is_held = lengths.most <= _HELD_MAX >= own.max()
        return error * (1 + lengths.most * float(own.max())) if is_held else math.inf
    is_held = min(lengths.least, own.min()) >= _HELD_MIN
    return error if is_held and max(lengths.most, own.max()) <= _HELD_MAX else math.inf
