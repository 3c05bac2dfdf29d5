"""Whoever applies the change feed has the table, also over truncates, loads and new columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.api.store import Store
from tests.engine.seams import fake_env, open_store

SCHEMA = {"id": "int64", "v": "int64"}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "db", fake_env()) as store:
        store.create_table("t", SCHEMA, primary_key="id")
        yield store


def live(db: Store) -> None:
    """Truncate between upserts and deletes, twice."""
    table = db["t"]
    table.upsert([{"id": n, "v": n} for n in range(4)])
    table.delete(1)
    table.truncate()
    table.upsert([{"id": 2, "v": 20}, {"id": 9, "v": 90}])
    table.truncate()
    table.upsert({"id": 5, "v": 50})


def replica(db: Store, seq: int) -> dict[int, int]:
    with db.snapshot(seq=seq) as then:
        return {row["id"]: row["v"] for row in then["t"].to_arrow().to_pylist()}


@pytest.mark.parametrize("step", ["memory", "flushed", "merged"])
def test_a_replica_that_applies_the_feed_equals_the_table_at_every_seq(
    db: Store, step: str
) -> None:
    live(db)
    if step != "memory":
        db.checkpoint()
    if step == "merged":
        db.merge()
    for since in range(1, db.seq + 1):
        for until in range(since, db.seq + 1):
            rows = replica(db, since)
            seqs = []
            for row in db.changes(since, until, ["t"])["t"].read_all().to_pylist():
                seqs.append(row["_seq"])
                if row["_op"] == "upsert":
                    rows[row["id"]] = row["v"]
                else:
                    assert row["_op"] == "delete"
                    assert row["v"] is None
                    rows.pop(row["id"], None)
            assert seqs == sorted(seqs)
            assert all(since < seq <= until for seq in seqs)
            assert rows == replica(db, until), (since, until)


def test_a_table_that_was_created_and_truncated_in_one_commit_has_a_feed(db: Store) -> None:
    with db.transaction() as tx:
        tx.create_table("new", SCHEMA, "id")
        tx["new"].truncate()
        tx["new"].insert({"id": 1, "v": 1})
    found = db.changes(tables=["new"])["new"].read_all().to_pylist()
    assert found == [{"_seq": tx.seq, "_op": "upsert", "id": 1, "v": 1}]
    assert isinstance(tx.receipt, st.Receipt)
