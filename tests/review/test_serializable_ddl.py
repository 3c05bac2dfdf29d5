"""Serializable transactions conflict with others, never with themselves, whatever DDL they do."""

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
        store.create_table("u", SCHEMA, primary_key="id")
        store.create_table("p", {"n": "int64"})
        store["t"].upsert({"id": 1, "v": 1})
        yield store


def strict(db: Store) -> st.Transaction:
    return db.transaction(isolation="serializable")


def test_a_transaction_may_truncate_what_it_has_read(db: Store) -> None:
    with strict(db) as tx:
        assert tx["t"].count() == 1
        assert tx["t"].get(1) is not None
        tx["t"].truncate()
        tx["t"].insert({"id": 2, "v": 2})
    assert db["t"].to_arrow().to_pylist() == [{"id": 2, "v": 2}]


def test_a_transaction_may_drop_what_it_has_read(db: Store) -> None:
    with strict(db) as tx:
        assert tx["t"].count() == 1
        tx.drop_table("t")
    assert "t" not in db.tables()


def test_reading_an_own_new_table_does_not_disturb_the_check_of_others(db: Store) -> None:
    tx = strict(db)
    tx.create_table("new", SCHEMA, "id").insert({"id": 1, "v": 1})
    assert tx["new"].count() == 1
    assert tx["t"].count("v > 10") == 0
    db["t"].upsert({"id": 2, "v": 2})
    tx.commit()
    assert db["new"].count() == 1


def test_two_appends_that_each_counted_the_plain_table_cannot_both_win(db: Store) -> None:
    one, two = strict(db), strict(db)
    for tx in (one, two):
        tx["p"].append([{"n": tx["p"].count()}])
    one.commit()
    with pytest.raises(st.ConflictError):
        two.commit()
    assert db["p"].to_arrow().to_pylist() == [{"n": 0}]


def test_a_plain_table_read_after_an_own_append_conflicts_with_a_later_one(db: Store) -> None:
    one = strict(db)
    one["p"].append([{"n": 1}])
    assert one["p"].count() == 1
    one["u"].upsert({"id": 1, "v": 1})
    db["p"].append([{"n": 2}])
    with pytest.raises(st.ConflictError):
        one.commit()


def test_a_plain_table_read_after_an_own_append_does_not_conflict_with_itself(db: Store) -> None:
    with strict(db) as tx:
        tx["p"].append([{"n": 1}])
        assert tx["p"].count() == 1
    assert db["p"].count() == 1


def test_a_phantom_is_found_under_a_column_that_was_renamed_meanwhile(db: Store) -> None:
    tx = strict(db)
    assert tx["t"].count("v > 10") == 0
    tx["u"].upsert({"id": 1, "v": 0})
    db["t"].rename_column("v", "w")
    db["t"].upsert({"id": 2, "w": 20})
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_phantom_is_found_under_a_column_that_the_reader_renamed_itself(db: Store) -> None:
    tx = strict(db)
    tx["t"].rename_column("v", "w")
    assert tx["t"].count("w > 10") == 0
    db["t"].upsert({"id": 2, "v": 20})
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_truncate_of_a_plain_table_conflicts_with_appends_since_it_began(db: Store) -> None:
    db["p"].append([{"n": 1}])
    tx = db.transaction()
    assert tx["p"].count() == 1
    tx["p"].truncate()
    db["p"].append([{"n": 2}])
    db["t"].upsert({"id": 5, "v": 5})
    db["t"].upsert({"id": 6, "v": 6})
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_what_is_forgotten_of_a_plain_table_is_what_no_transaction_needs(db: Store) -> None:
    held = db.transaction()
    db["p"].append([{"n": 1}])
    tx = db.transaction()
    tx["p"].truncate()
    db["p"].append([{"n": 2}])
    held.rollback()
    db["t"].upsert({"id": 5, "v": 5})
    with pytest.raises(st.ConflictError):
        tx.commit()
