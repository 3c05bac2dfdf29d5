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

import numpy as np

from siltstone.engine.levels.row_vectors import VectorBlock

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
    with np.errstate(all="ignore"):
        products, square = matrix @ query, query @ query
        if metric == "l2":
            found = squares - 2 * products + square
            slack = 2 * error * (squares + square)
        else:
            lengths = np.sqrt(squares * square)
            found = 1 - (products / lengths if metric == "cosine" else products)
            slack = 4 * error * (1 if metric == "cosine" else 1 + lengths)
        slack = slack + np.finfo(np.float32).eps * np.abs(found)  # `measured` rounds
        return found - slack, found + slack
