"""The feed of a name makes a copy of what has that name now, whichever table had it before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.api.store import Store
from tests.engine.seams import fake_env, open_store

SCHEMA = {"id": "int64", "v": "int64"}
OTHER = {"w": "string", "id": "int64"}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "db", fake_env()) as store:
        yield store


def drop_and_create(db: Store) -> None:
    db.create_table("t", SCHEMA, primary_key="id").upsert([{"id": n, "v": n} for n in range(3)])
    db["t"].delete(0)
    db.drop_table("t")
    db.create_table("t", OTHER, primary_key="id").upsert(
        [{"id": 2, "w": "b"}, {"id": 9}], missing="null"
    )
    db["t"].delete(9)


def drop_and_create_in_one_commit(db: Store) -> None:
    db.create_table("t", SCHEMA, primary_key="id").upsert([{"id": n, "v": n} for n in range(3)])
    with db.transaction() as tx:
        tx.drop_table("t")
        tx.create_table("t", SCHEMA, "id").upsert([{"id": 2, "v": 20}, {"id": 7, "v": 70}])
    db["t"].upsert({"id": 8, "v": 80})


def swap(db: Store) -> None:
    """Build a table beside the one it replaces."""
    db.create_table("t", SCHEMA, primary_key="id").upsert([{"id": n, "v": n} for n in range(3)])
    db.create_table("new", SCHEMA, primary_key="id").upsert({"id": 1, "v": 10})
    db["new"].upsert([{"id": 2, "v": 20}, {"id": 4, "v": 40}])
    db["t"].upsert({"id": 5, "v": 5})
    db["new"].delete(4)
    with db.transaction() as tx:
        tx.rename_table("t", "old")
        tx.rename_table("new", "t")
    db["t"].upsert({"id": 6, "v": 60})
    db["old"].upsert({"id": 7, "v": 7})
    db.drop_table("old")


def a_name_that_comes_back(db: Store) -> None:
    db.create_table("t", SCHEMA, primary_key="id").upsert([{"id": n, "v": n} for n in range(3)])
    db.rename_table("t", "u")
    db["u"].upsert({"id": 3, "v": 3})
    db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 10})
    db.drop_table("t")
    db.rename_table("u", "t")
    db["t"].delete(0)


def apply(copy: dict[int, dict], feed: Iterator[dict], key: str = "id") -> dict[int, dict]:
    for row in feed:
        seq, op = row.pop("_seq"), row.pop("_op")
        assert seq > 0
        if op == "delete":
            copy.pop(row[key], None)
        else:
            copy[row[key]] = row
    return copy


def copies(db: Store, seq: int) -> dict[str, dict[int, dict]]:
    with db.snapshot(seq=seq) as then:
        found = {name: then[name].to_arrow().to_pylist() for name in then.tables()}
    return {name: {row["id"]: row for row in rows} for name, rows in found.items()}


@pytest.mark.parametrize("step", ["memory", "flushed", "merged"])
@pytest.mark.parametrize(
    "life", [drop_and_create, drop_and_create_in_one_commit, swap, a_name_that_comes_back]
)
def test_a_copy_of_a_name_that_follows_its_feed_equals_the_table_at_every_seq(
    db: Store, life: Callable[[Store], None], step: str
) -> None:
    life(db)
    if step != "memory":
        db.checkpoint()
    if step == "merged":
        db.merge()
    for since in range(db.seq + 1):
        for until in range(since, db.seq + 1):
            before, after = copies(db, since), copies(db, until)
            feeds = db.changes(since, until)
            assert sorted(feeds) == sorted(after), "a table that is gone has no feed"
            for name, feed in feeds.items():
                rows = feed.read_all().to_pylist()
                seqs = [row["_seq"] for row in rows]
                assert seqs == sorted(seqs)
                assert all(since < seq <= until for seq in seqs)
                assert apply(before.get(name, {}), iter(rows)) == after[name], (since, until)


def test_a_name_that_passes_to_a_table_with_another_key_has_no_feed_over_that(db: Store) -> None:
    db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
    since = db.seq
    dropped = db.drop_table("t").seq
    db.create_table("t", {"id": "string"}, primary_key="id").upsert({"id": "a"})
    with pytest.raises(st.SchemaMismatchError, match=f"seq {dropped}"):
        db.changes(since, tables=["t"])
    assert apply({}, iter(db.changes(tables=["t"])["t"].read_all().to_pylist())) == {
        "a": {"id": "a"}
    }


def test_a_keyed_table_that_takes_the_name_of_a_plain_one_has_nothing_to_delete(db: Store) -> None:
    db.create_table("t", SCHEMA).append({"id": 1, "v": 1})
    since = db.seq
    db.drop_table("t")
    db.create_table("t", SCHEMA, primary_key="id").upsert({"id": 2, "v": 2})
    found = db.changes(since, tables="t")["t"].read_all().to_pylist()
    assert found == [{"_seq": db.seq, "_op": "upsert", "id": 2, "v": 2}]
