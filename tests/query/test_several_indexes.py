"""A column may have several indexes of vectors: a search asks one that has its metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from tests.query.nearest_rows import found, nearest

ROWS, SIZE, PARTITIONS = 5_000, 8, 16
METRICS = ("l2", "cosine", "dot")
MATRIX = np.random.default_rng(4).standard_normal((2 * ROWS, SIZE)).astype(np.float32)
QUERIES = MATRIX[::2_000]


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with st.connect(tmp_path / "s", background=False) as store:
        yield store


def rows_of(first: int, count: int) -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(MATRIX[first : first + count].ravel(), SIZE)
    return pa.table({"id": range(first, first + count), "v": vectors})


def merged(db: st.Store, first: int, count: int) -> Any:
    if "t" not in db:
        columns = {"id": "int64", "v": f"vector(float32, {SIZE})"}
        db.create_table("t", columns, primary_key="id")
    db["t"].upsert(rows_of(first, count))
    db.checkpoint()
    db.merge()
    return db["t"]


def index(table: Any, metric: str, **options: Any) -> None:
    options = {"encoding": "flat", "partitions": PARTITIONS, "name": metric} | options
    table.create_index("v", kind="vector", metric=metric, **options)


def is_asked(table: Any, metric: str) -> bool:
    """Say whether an index is: a look into one of its partitions misses rows."""
    few = table.search(QUERIES[0], k=ROWS, metric=metric, nprobes=1, columns=["id"])
    return len(few) < ROWS


def test_each_metric_is_asked_of_its_own_index(
    db: st.Store, capfd: pytest.CaptureFixture[str]
) -> None:
    table = merged(db, 0, ROWS)
    for metric in METRICS:
        index(table, metric)
    assert [is_asked(table, metric) for metric in METRICS] == [True] * 3
    for metric in METRICS:
        for query in QUERIES:
            asked: dict[str, Any] = {"k": 9, "metric": metric}
            exact = table.search(query, **asked, exact=True).to_arrow()
            assert table.search(query, **asked, nprobes=PARTITIONS).to_arrow() == exact
    table.drop_index("cosine")
    assert [is_asked(table, metric) for metric in METRICS] == [True, False, True]
    assert "brute-force" not in capfd.readouterr().err  # Lance's word for a metric of no index


def test_rows_above_base_and_hidden_ones_are_as_with_one_index(db: st.Store) -> None:
    table = merged(db, 0, ROWS)
    for metric in METRICS:
        index(table, metric)
    table.upsert(rows_of(ROWS, 40))
    table.delete([*range(0, ROWS, 3)])
    live = {n: MATRIX[n].tolist() for n in range(ROWS + 40) if n % 3 or n >= ROWS}
    some = {n: row for n, row in live.items() if n >= ROWS - 20}
    for metric in METRICS:
        for query in (*QUERIES, MATRIX[ROWS + 3], MATRIX[0]):
            result = table.search(query, 12, metric=metric, nprobes=PARTITIONS)
            assert found(result) == nearest(live, query.tolist(), 12, metric)
        result = table.search(QUERIES[1], 12, metric=metric, filter=f"id >= {ROWS - 20}")
        assert found(result) == nearest(some, QUERIES[1].tolist(), 12, metric)


def test_of_two_indexes_of_one_metric_that_with_more_rows_is_asked(db: st.Store) -> None:
    table = merged(db, 0, ROWS)
    index(table, "l2", name="rough", encoding="pq", sub_vectors=1)
    index(table, "l2", name="fine", build=False)
    (fine, rough) = table.indexes()
    assert (fine.recall, fine.indexed_rows) == (None, 0)
    assert rough.recall < 0.95
    assert is_asked(table, "l2")
    db.optimize()
    (fine, rough) = table.indexes()
    assert fine.recall > rough.recall + 0.03  # each is measured by its own rows
    assert is_asked(table, "l2")
    table.drop_index("rough")
    assert is_asked(table, "l2")
