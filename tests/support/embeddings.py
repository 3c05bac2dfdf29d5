"""Embeddings: many vectors with the shape of real ones, made from those of `examples/search`.

Each is a mix of two real vectors, the second one of those near the first, plus noise, of length 1.
The noise has the covariance of what a real vector does not share with its nearest: so directions
in which real vectors differ vary much, and others little.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

REAL = Path(__file__).parents[2] / "examples" / "search" / "texts.parquet"
NEAR = 32


def real() -> np.ndarray:
    """Return the vectors of the texts: airlines, airports and packages, 384 floats each."""
    listed = pq.read_table(REAL, columns=["v"])["v"].to_pylist()
    return _of_length_1(np.array(listed, np.float32))


def like_real(count: int, seed: int) -> np.ndarray:
    """Return so many vectors, the same for each seed."""
    known, random = real(), np.random.default_rng(seed)
    likeness = known @ known.T
    np.fill_diagonal(likeness, -1)
    near = np.argsort(-likeness, axis=1)[:, :NEAR]  # the nearest first
    first = random.integers(0, len(known), count)
    second = near[first, random.integers(0, NEAR, count)]
    share = random.random((count, 1), np.float32)
    apart = (known - known[near[:, 0]]) / np.sqrt(2)  # the difference of two has twice the variance
    spread = np.linalg.svd(apart / np.sqrt(len(known)), full_matrices=False)
    noise = random.standard_normal((count, known.shape[1]), np.float32) * spread.S @ spread.Vh
    return _of_length_1(share * known[first] + (1 - share) * known[second] + noise)


def _of_length_1(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
