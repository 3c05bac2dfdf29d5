"""At its defaults an index finds the nearest of many vectors with the shape of real embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import siltstone as st
from tests.maintenance.test_encodings import filled, table_of
from tests.support.embeddings import like_real, real

ROWS, K, QUERIES = 50_000, 10, 100


def recall(table: st.Table, rows: np.ndarray, queries: np.ndarray) -> float:
    """Return which share of the nearest rows searches find."""
    products = queries @ rows.T  # all are of length 1: the highest product is the least distance
    hits = 0
    for query, product in zip(queries, products, strict=True):
        best = np.argpartition(-product, K)[:K]
        hits += len({row["id"] for row in table.search(query, K, columns=["id"])} & {*best})
    return hits / (len(queries) * K)


def test_the_ten_nearest_of_50000_vectors_like_real_ones_are_found(tmp_path: Path) -> None:
    rows = like_real(ROWS, 1)
    with st.connect(tmp_path / "s", background=False) as db:
        table = filled(db, table_of(range(ROWS), rows))
        made = table.create_index("v", kind="vector")
        assert (made.encoding, made.lagging_rows) == ("rq", 0)
        assert made.recall is not None
        assert made.recall >= 0.95
        assert recall(table, rows, like_real(QUERIES, 2)) >= 0.95
        assert recall(table, rows, real()[::15]) >= 0.95


def test_generated_vectors_have_the_shape_of_real_ones() -> None:
    known, made = real(), like_real(5_000, 3)
    assert made.shape == (5_000, known.shape[1])
    assert np.linalg.norm(made, axis=1) == pytest.approx(1, abs=1e-5)
    assert (made == like_real(5_000, 3)).all()
    assert not (made[:100] == like_real(100, 4)).all()
    # As many directions matter: the effective rank of the covariances, from 1 to 384.
    ranks = [
        np.trace(each) ** 2 / (each**2).sum()
        for each in (np.cov(vectors, rowvar=False) for vectors in (known, made))
    ]
    assert ranks[1] == pytest.approx(ranks[0], rel=0.25)
