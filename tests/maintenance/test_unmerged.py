"""A merge begins when there is something worth folding, and never for what it cannot fold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from siltstone.maintenance.schedule import unmerged
from siltstone.maintenance.schedule.unmerged import history_bytes, unmerged_rows, wants_merge
from tests.maintenance.stores import open_store

GIB = 1 << 30


@pytest.fixture
def db(tmp_path, monkeypatch):
    monkeypatch.setattr(unmerged, "MERGE_ROWS_MIN", 100)
    with open_store(tmp_path / "s", memory_bytes_max=64 << 20) as store:
        store.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        yield store


def view_of(db):
    return db._core.state().view


def upsert(db, first: int, count: int) -> None:
    db["t"].upsert([{"id": first + n, "v": "x"} for n in range(count)])
    db.checkpoint()


def test_a_tenth_of_base_is_worth_a_merge_and_fewer_rows_are_not(db):
    upsert(db, 0, 2_000)
    db.merge()
    upsert(db, 0, 199)
    assert not wants_merge(view_of(db), GIB)
    upsert(db, 0, 1)
    assert (unmerged_rows(view_of(db)), wants_merge(view_of(db), GIB)) == (200, True)
    db.merge()
    assert (unmerged_rows(view_of(db)), wants_merge(view_of(db), GIB)) == (0, False)


def test_what_is_not_flushed_is_not_worth_a_merge(db):
    db["t"].upsert([{"id": n, "v": "x"} for n in range(1_000)])
    assert not wants_merge(view_of(db), 1)


def test_the_memory_of_many_small_tables_is_worth_a_merge(db):
    for number in range(20):
        db.create_table(f"t{number}", {"id": "int64"}, primary_key="id")
        db[f"t{number}"].upsert([{"id": n} for n in range(50)])
    db.checkpoint()
    size = history_bytes(view_of(db))
    assert size >= 20 * 50 * 57
    assert wants_merge(view_of(db), 32 * size)
    assert not wants_merge(view_of(db), 32 * (size + 1))
    db.merge()
    assert history_bytes(view_of(db)) == 0


def test_vectors_that_searches_keep_are_worth_a_merge(db, monkeypatch):
    monkeypatch.setattr(unmerged, "MERGE_ROWS_MIN", 1_000_000)
    size, rows = 256, 2_000
    db.create_table("docs", {"id": "int64", "v": f"vector(float32, {size})"}, primary_key="id")
    vectors = np.random.default_rng(1).standard_normal((rows, size)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), size)
    db["docs"].upsert(pa.table({"id": pa.array(range(rows)), "v": column}))
    assert db.status().memory.vectors == 0
    db["docs"].search(vectors[0])
    kept = db.status().memory.vectors
    assert kept >= vectors.nbytes
    # What is not flushed is not worth a merge, which could not fold it.
    assert not wants_merge(view_of(db), 16 * kept)
    db.checkpoint()
    db["docs"].search(vectors[0])
    assert db.status().memory.vectors == kept
    budget = 32 * history_bytes(view_of(db)) + 1
    assert 16 * kept > budget
    assert wants_merge(view_of(db), 16 * kept)
    assert not wants_merge(view_of(db), 16 * (kept + 1))
    db.merge()
    assert db.status().memory.vectors == 0
    assert not wants_merge(view_of(db), 16 * kept)
