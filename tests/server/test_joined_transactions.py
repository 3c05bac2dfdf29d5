"""A joined transaction is the owner's: one snapshot, own writes, one commit or none."""

from __future__ import annotations

import contextlib
import gc

import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from tests.server.stores import eventually

Both = tuple[st.Store, JoinedStore]


def test_it_sees_its_own_writes_and_nobody_else_does_before_the_commit(both: Both) -> None:
    owner, joined = both
    with joined.transaction() as tx:
        tx["t"].upsert({"id": 3, "v": 30})
        assert tx["t"].get(3) == {"id": 3, "v": 30}
        assert tx["t"].count() == 3
        assert joined["t"].get(3) is None
    assert owner["t"].get(3) == {"id": 3, "v": 30}
    transaction_id = tx.receipt.transaction_id
    assert tx.receipt == st.Receipt(owner.seq, 1, transaction_id)
    assert owner.outcome(transaction_id) == joined.outcome(transaction_id) == "committed"


def test_it_sees_one_snapshot(both: Both) -> None:
    owner, joined = both
    with joined.transaction() as tx:
        owner["t"].upsert({"id": 1, "v": 11})
        assert tx["t"].get(1) == {"id": 1, "v": 10}


@pytest.mark.parametrize(("isolation", "rows"), [("snapshot", 2), ("serializable", 1)])
def test_one_in_series_counts_what_another_process_inserted_or_is_refused(
    both: Both, isolation: str, rows: int
) -> None:
    owner, joined = both
    with contextlib.suppress(st.ConflictError), joined.transaction(isolation=isolation) as tx:
        assert tx["t"].count("v = 70") == 0
        with owner.transaction(isolation=isolation) as other:
            assert other["t"].count("v = 70") == 0
            other["t"].insert({"id": 7, "v": 70})
        tx["t"].insert({"id": 8, "v": 70})
    assert owner["t"].count("v = 70") == rows


def test_an_error_in_the_block_rolls_it_back(both: Both) -> None:
    owner, joined = both
    tx = joined.transaction()

    def work() -> None:
        with tx:
            tx["t"].delete([1, 2])
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert owner["t"].count() == 2
    assert owner.status().open_transactions == 0
    with pytest.raises(st.ClosedError):
        tx["t"]


def test_a_conflict_is_the_same_error_as_in_the_owner(both: Both) -> None:
    owner, joined = both
    tx = joined.transaction()
    tx["t"].update(1, v=11)
    receipt = owner["t"].update(1, v=12)
    with pytest.raises(st.ConflictError) as caught:
        tx.commit()
    error = caught.value
    assert (error.table, error.key) == ("t", 1)
    assert (error.read_seq, error.written_seq) == (tx.read_seq, receipt.seq)


def test_run_tries_again_after_a_conflict(both: Both) -> None:
    owner, joined = both
    tries = []

    def work(tx: object) -> int:
        tries.append(1)
        value = tx["t"].get(1)["v"]
        if len(tries) == 1:
            owner["t"].update(1, v=100)
        tx["t"].update(1, v=value + 1)
        return value

    assert joined.run(work) == 100
    assert owner["t"].get(1) == {"id": 1, "v": 101}


def test_a_transaction_that_nobody_holds_ends_with_its_connection(both: Both) -> None:
    owner, joined = both
    tx = joined.transaction()
    tx["t"].update(1, v=11)
    del tx
    gc.collect()
    eventually(lambda: owner.status().open_transactions == 0)
    assert owner["t"].get(1) == {"id": 1, "v": 10}


def test_tables_are_made_and_filled_in_one_commit(both: Both) -> None:
    owner, joined = both
    with joined.transaction() as tx:
        made = tx.create_table("new", {"id": "int64"}, "id")
        made.insert([{"id": 1}])
        tx["t"].add_column("w", "string")
        tx.rename_table("t", "old")
        assert tx.tables() == ["new", "old"]
        assert tx["old"].schema.names == ["id", "v", "w"]
    assert owner.tables() == ["new", "old"]
    assert owner["new"].count() == 1


def test_a_token_is_applied_once(both: Both) -> None:
    owner, joined = both
    receipts = []
    for _ in range(2):
        with joined.transaction(token=("app", 1)) as tx:
            tx["t"].upsert({"id": 9, "v": 9})
        receipts.append((tx.receipt.seq, tx.receipt.rows))
    assert receipts[0] == receipts[1]
    assert owner.seq == receipts[0][0]


def test_tables_that_are_made_under_a_token_are_made_once(both: Both) -> None:
    owner, joined = both
    for _ in range(2):
        with joined.transaction(token=("app", 1)) as tx:
            tx.create_table("new", {"id": "int64"}, "id").insert([{"id": 1}])
            tx["t"].add_column("w", "string")
            tx.rename_table("t", "old")
            assert tx["new"].count() == 1
            assert tx["old"].schema.names == ["id", "v", "w"]
        assert tx.seq == owner.seq
    assert owner.tables() == ["new", "old"]
    assert owner["new"].count() == 1
