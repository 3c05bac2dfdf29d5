"""A serializable transaction that writes commits only if all it read still reads the same."""

from __future__ import annotations

import pytest

import siltstone as st
from tests.isolation.stores import with_two_rows

MANY = [{"id": n, "v": 1000} for n in range(100, 800)]


def committing(db: st.Store, read, write=lambda tx: tx["t"].upsert({"id": 99, "v": 0})):
    tx = db.transaction(isolation="serializable")
    read(tx)
    write(tx)
    return tx


def test_an_update_that_leaves_anothers_predicate_refuses_it() -> None:
    db = with_two_rows()
    tx = committing(db, lambda tx: tx["t"].count("v >= 20"))
    db["t"].update(2, v=1)
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_key_that_enters_and_leaves_a_predicate_meanwhile_changes_nothing() -> None:
    db = with_two_rows()
    tx = committing(db, lambda tx: tx["t"].count("v > 100"))
    db["t"].upsert({"id": 5, "v": 500})
    db["t"].upsert({"id": 5, "v": 5})
    tx.commit()


def test_an_upsert_of_many_rows_refuses_a_scan_of_them() -> None:
    db = with_two_rows()
    tx = committing(db, lambda tx: tx["t"].count("v = 1000"))
    db["t"].upsert(MANY)
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_delete_of_many_rows_refuses_a_scan_of_them() -> None:
    db = with_two_rows()
    db["t"].upsert(MANY)
    tx = committing(db, lambda tx: tx["t"].count("v = 1000"))
    db["t"].delete([row["id"] for row in MANY])
    db.checkpoint()
    db.merge()
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_key_read_and_then_written_in_a_batch_is_a_conflict() -> None:
    db = with_two_rows()
    tx = committing(db, lambda tx: tx["t"].get(150))
    db["t"].upsert(MANY)
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_get_many_is_a_read_of_each_key() -> None:
    db = with_two_rows()
    tx = committing(db, lambda tx: tx["t"].get_many([1, 7]))
    db["t"].insert({"id": 7, "v": 7})
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_whole_count_is_a_read_of_every_row() -> None:
    db = with_two_rows()
    tx = committing(db, lambda tx: tx["t"].count())
    db["t"].insert({"id": 7, "v": 7})
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_read_of_one_table_guards_a_write_to_another() -> None:
    db = with_two_rows()
    db.create_table("u", {"id": "int64"}, "id")
    tx = committing(db, lambda tx: tx["t"].get(1), lambda tx: tx["u"].upsert({"id": 1}))
    db["t"].delete(1)
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert db["u"].count() == 0


def test_what_was_only_read_commits_whatever_was_written_meanwhile() -> None:
    db = with_two_rows()
    tx = committing(db, lambda tx: tx["t"].count(), lambda _: None)
    db["t"].delete(1)
    assert tx.commit().seq == tx.read_seq


@pytest.mark.parametrize("reads_first", [True, False])
def test_two_that_count_a_plain_table_and_append_to_it_do_not_both_commit(
    reads_first: bool,
) -> None:
    db = with_two_rows()
    db.create_table("log", {"a": "int64"})
    db["log"].append({"a": 0})
    txs = [db.transaction(isolation="serializable") for _ in range(2)]
    for tx in txs:
        if reads_first:
            assert tx["log"].count() == 1
        tx["log"].append({"a": 1})
        if not reads_first:
            assert tx["log"].count() == 2
    txs[0].commit()
    with pytest.raises(st.ConflictError):
        txs[1].commit()
    assert db["log"].count() == 2


def test_a_plain_table_that_was_empty_when_it_was_read_guards_a_write() -> None:
    db = with_two_rows()
    db.create_table("log", {"a": "int64"})
    tx = committing(db, lambda tx: tx["log"].count())
    db["log"].append({"a": 1})
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_plain_table_read_and_truncated_meanwhile_guards_a_write() -> None:
    db = with_two_rows()
    db.create_table("log", {"a": "int64"})
    db["log"].append({"a": 1})
    tx = committing(db, lambda tx: tx["log"].count())
    db["log"].truncate()
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_plain_table_that_one_appends_to_without_reading_takes_both() -> None:
    db = with_two_rows()
    db.create_table("log", {"a": "int64"})
    txs = [db.transaction(isolation="serializable") for _ in range(2)]
    for tx in txs:
        tx["log"].append({"a": 1})
        tx.commit()
    assert db["log"].count() == 2


@pytest.mark.parametrize("verb", ["truncate", "drop"])
@pytest.mark.parametrize("table", ["t", "log"])
def test_ones_own_truncate_or_drop_is_no_conflict_with_what_one_read(verb: str, table: str) -> None:
    db = with_two_rows()
    db.create_table("log", {"a": "int64"})
    db["log"].append({"a": 1})
    with db.transaction(isolation="serializable") as tx:
        assert tx[table].count()
        if verb == "drop":
            tx.drop_table(table)
        else:
            tx[table].truncate()
            assert tx[table].count() == 0
    assert table not in db.tables() or db[table].count() == 0


def test_a_table_made_and_read_in_one_transaction_is_its_own() -> None:
    db = with_two_rows()
    with db.transaction(isolation="serializable") as tx:
        assert tx.create_table("u", {"id": "int64"}, "id").get(1) is None
        assert tx["u"].count() == 0
        assert tx.create_table("log", {"a": "int64"}).count() == 0
        tx["log"].append({"a": 1})
    assert db["log"].count() == 1
