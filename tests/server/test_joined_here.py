"""A transaction of a joined process runs where it is, and asks its owner once, at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from siltstone.joined.transactions import owner_commits
from siltstone.options import resolve
from tests.server.stores import joined_to, opened
from tests.server.wire import wire_to

Both = tuple[st.Store, JoinedStore]
near = pytest.mark.parametrize("way", ["near"], indirect=True)


def asked_of(joined: JoinedStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of what is asked of the owner from now on."""
    pool, asked = joined.pool, list[str]()
    message = pool.message

    def noted(path: str, *given: Any, **of: Any) -> Any:
        asked.append(path)
        return message(path, *given, **of)

    monkeypatch.setattr(pool, "message", noted)
    return asked


@near
def test_a_transaction_is_one_request(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, joined = both
    asked = asked_of(joined, monkeypatch)
    with joined.transaction(isolation="serializable") as tx:
        table = tx["t"]
        table.update(1, v=table.get(1)["v"] + 1)
        assert table.get(1)["v"] == 11
        assert (table.count(), table.count("v > 10")) == (2, 2)
        assert tx.sql("select sum(v) from t").fetchall() == [(31,)]
        table.insert({"id": 3, "v": 30})
        table.delete([2])
    assert asked == ["commit_writes"]
    assert tx.receipt is not None
    assert (tx.receipt.rows, tx.seq) == (3, owner.seq)
    assert owner["t"].to_arrow().to_pylist() == [{"id": 1, "v": 11}, {"id": 3, "v": 30}]
    assert joined.outcome(tx.receipt.transaction_id) == "committed"
    assert owner.log(1)[0].transaction == tx.receipt.transaction_id


@near
def test_one_that_only_reads_asks_nothing(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    _, joined = both
    asked = asked_of(joined, monkeypatch)
    with joined.transaction() as tx:
        assert tx["t"].get(1) == {"id": 1, "v": 10}
    joined.transaction().rollback()
    assert asked == []
    assert tx.receipt is not None
    assert tx.receipt.rows == 0


MOVES: list[tuple[str, Callable[[st.Transaction], object]]] = [
    ("a table", lambda tx: tx.create_table("new", {"n": "int64"})),
    ("a name", lambda tx: tx.rename_table("u", "w")),
    ("no table", lambda tx: tx.drop_table("u")),
    ("a column", lambda tx: tx["t"].add_column("w", "int64")),
    ("no rows", lambda tx: tx["u"].truncate()),
    ("a plain table", lambda tx: tx["plain"].append([{"n": 2}])),
    ("rows of a plain table", lambda tx: tx["plain"].delete_where("n = 1")),
    ("a tag", lambda tx: tx.tag("now", tx.read_seq)),
]


@pytest.mark.parametrize("step", [each for _, each in MOVES], ids=[name for name, _ in MOVES])
def test_what_needs_the_owner_goes_on_there_with_all_that_was_done(
    both: Both, step: Callable[[st.Transaction], object]
) -> None:
    owner, joined = both
    owner.create_table("u", {"id": "int64"}, primary_key="id")
    owner.create_table("plain", {"n": "int64"}).append([{"n": 1}])
    with joined.transaction() as tx:
        table = tx["t"]
        table.update(1, v=11)
        table.upsert([{"id": number, "v": 0} for number in range(100, 200)])
        table.delete([2])
        owner["t"].upsert({"id": 50, "v": 5})
        step(tx)
        assert table.get(1)["v"] == 11
        assert (table.get(2), table.get(50), table.count()) == (None, None, 101)
        table.update(1, v=12)
        assert owner["t"].get(1)["v"] == 10
    assert owner["t"].get(1)["v"] == 12
    assert owner["t"].count() == 102


def test_many_rows_go_along_to_the_owner(both: Both) -> None:
    owner, joined = both
    with joined.transaction() as tx:
        tx["t"].upsert(pa.table({"id": range(20_000), "v": range(20_000)}))
        tx["t"].delete([5])
        tx.create_table("new", {"n": "int64"})
        assert tx["t"].count() == 19_999
    assert owner["t"].count() == 19_999


def test_a_conflict_before_the_move_is_found_after_it(both: Both) -> None:
    owner, joined = both
    tx = joined.transaction()
    tx["t"].update(1, v=11)
    owner["t"].update(1, v=7)
    tx.create_table("new", {"n": "int64"})
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert owner["t"].get(1)["v"] == 7
    assert "new" not in owner.tables()


def test_what_was_read_before_the_move_counts_if_reads_count(both: Both) -> None:
    owner, joined = both
    tx = joined.transaction(isolation="serializable")
    assert tx["t"].get(1)["v"] == 10
    owner["t"].update(1, v=7)
    tx.create_table("new", {"n": "int64"})
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_local_read_set_is_sent(both: Both) -> None:
    owner, joined = both
    for read in (
        lambda table: table.get(1),
        lambda table: table.get_many([1, 2]),
        lambda table: table.count("v < 100"),
        lambda table: table.to_arrow(),
    ):
        tx = joined.transaction(isolation="serializable")
        read(tx["t"])
        tx["t"].upsert({"id": 9, "v": 0})
        owner["t"].update(1, v=7)
        with pytest.raises(st.ConflictError):
            tx.commit()
    assert owner["t"].get(9) is None


def test_a_scan_does_not_conflict_with_what_it_would_not_have_read(both: Both) -> None:
    owner, joined = both
    tx = joined.transaction(isolation="serializable")
    assert tx["t"].count("v > 100") == 0
    tx["t"].upsert({"id": 9, "v": 0})
    owner["t"].update(1, v=7)
    owner["t"].upsert({"id": 8, "v": 50})
    tx.commit()
    assert owner["t"].get(9) is not None
    tx = joined.transaction(isolation="serializable")
    assert tx["t"].count("v > 100") == 0
    tx["t"].upsert({"id": 10, "v": 0})
    owner["t"].update(1, v=700)
    with pytest.raises(st.ConflictError):
        tx.commit()


@near
def test_more_reads_than_a_request_carries_count_as_a_scan(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, joined = both
    monkeypatch.setattr(owner_commits, "KEYS_READ_MAX", 3)
    for change, is_refused in ((lambda: None, False), (lambda: owner["t"].update(1, v=7), True)):
        tx = joined.transaction(isolation="serializable")
        for key in range(20, 30):
            tx["t"].get(key)
        tx["t"].upsert({"id": 9, "v": 0})
        change()
        if is_refused:
            with pytest.raises(st.ConflictError):
                tx.commit()
        else:
            tx.commit()


def test_a_run_adds_up_beside_others(both: Both) -> None:
    owner, joined = both

    def add(db: st.Store) -> None:
        def work(tx: st.Transaction) -> None:
            tx["t"].update(1, v=tx["t"].get(1)["v"] + 1)

        for _ in range(25):
            db.run(work)

    threads = [threading.Thread(target=add, args=(db,)) for db in (owner, joined, joined, owner)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert owner["t"].get(1)["v"] == 110


@near
def test_a_batch_with_a_token_is_one_request_and_applied_once(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, joined = both
    asked, receipts = asked_of(joined, monkeypatch), list[Any]()
    for value in (11, 12):  # it is tried again, as if its answer had been lost
        with joined.transaction(token=("app", 1), isolation="serializable") as tx:
            assert tx.is_applied is (value == 12)
            tx["t"].update(1, v=value)
        receipts.append(tx.receipt)
    assert asked == ["commit_writes", "commit_writes"]
    assert receipts[0].seq == receipts[1].seq == owner.seq
    assert owner["t"].get(1)["v"] == 11
    first, other = joined.transaction(token=("app", 2)), joined.transaction(token=("app", 2))
    first["t"].update(1, v=13)
    other["t"].update(2, v=14)
    assert (first.commit().seq, other.commit().seq) == (owner.seq, owner.seq)
    assert [owner["t"].get(key)["v"] for key in (1, 2)] == [13, 20]
    with joined.transaction(token=("app", 3)) as tx:  # a batch of nothing
        pass
    assert tx.receipt is not None
    joined.transaction(token=("new", 5)).commit()
    with pytest.raises(st.RequestError, match="batches of an app strictly increase"):
        joined.transaction(token=("new", 4)).commit()
    with owner.transaction(token=("app", 3)) as known:
        assert known.is_applied


@near
def test_a_token_that_was_applied_since_and_flushed_returns_its_receipt(both: Both) -> None:
    """Though its rows were written since: by the batch itself, which is tried again."""
    owner, joined = both
    late = joined.transaction(token=("app", 1))
    late["t"].update(1, v=11)
    with owner.transaction(token=("app", 1)) as tx:
        tx["t"].update(1, v=11)
    owner.merge()
    for number in range(100):
        owner["t"].upsert({"id": 100, "v": number})
    owner._core.recent.window_bytes = 0
    owner["t"].upsert({"id": 100, "v": 0})
    assert late.commit().seq == tx.seq
    assert owner["t"].get(1)["v"] == 11


@near
def test_a_holder_that_another_one_followed_is_fenced(both: Both) -> None:
    owner, joined = both
    mine = owner.claim("app", "one")
    with joined.transaction(token=("app", 1), claim=mine) as tx:
        tx["t"].update(1, v=11)
    late = joined.transaction(token=("app", 2), claim=mine)
    late["t"].update(1, v=12)
    owner.claim("app", "two")
    with pytest.raises(st.FencedError):
        late.commit()
    assert owner["t"].get(1)["v"] == 11


@near
def test_a_transaction_at_an_earlier_seq_is_one_request(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, joined = both
    then = owner.seq
    owner["t"].update(1, v=11)
    owner.merge()
    joined["t"].get(1)
    asked = asked_of(joined, monkeypatch)
    with joined.transaction(read_seq=then) as tx:
        assert (tx.read_seq, tx["t"].get(1)["v"]) == (then, 10)
        tx["t"].update(2, v=21)
    assert asked == ["commit_writes"]
    lost = joined.transaction(read_seq=then)
    lost["t"].update(1, v=12)
    with pytest.raises(st.ConflictError):
        lost.commit()
    assert [owner["t"].get(key)["v"] for key in (1, 2)] == [11, 21]
    with pytest.raises(st.SnapshotExpiredError):
        joined.transaction(read_seq=owner.seq + 1)


@near
def test_an_idle_transaction_ends_and_nothing_is_committed(both: Both) -> None:
    owner, joined = both
    joined.pool.hello["idle_s"] = 0.0
    tx = joined.transaction()
    with pytest.raises(st.ClosedError, match="was idle for more than 0 s"):
        tx["t"].update(1, v=11)
    with pytest.raises(st.ClosedError, match="is ended"):
        tx.commit()
    assert owner["t"].count() == 2


@near
def test_the_next_owner_commits_what_began_under_the_one_before(tmp_path: Path) -> None:
    """It knows what was committed since, though nobody told it of the transaction."""
    path = tmp_path / "shop"
    with opened(path) as owner:
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        owner["t"].upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])
        joined = joined_to(owner)
        lost, won = joined.transaction(), joined.transaction()
        lost["t"].update(1, v=lost["t"].get(1)["v"] + 1)
        won["t"].update(2, v=won["t"].get(2)["v"] + 1)
        owner["t"].update(1, v=7)
    with opened(path) as owner:
        owner.serve_local()
        with pytest.raises(st.ConflictError):
            lost.commit()
        won.commit()
        assert [owner["t"].get(key)["v"] for key in (1, 2)] == [7, 21]
        joined.close()


@near
def test_a_commit_whose_answer_is_lost_is_found_by_its_id(both: Both, tmp_path: Path) -> None:
    owner, _ = both
    with wire_to(owner.serve_local(), tmp_path) as wire:
        joined = JoinedStore(owner.path, str(wire.address), resolve(owner.path, {}))
        for is_before, outcome, value in ((True, "not committed", 10), (False, "committed", 11)):
            tx = joined.transaction()
            tx["t"].update(1, v=11)
            wire.mark, wire.is_before = b"commit_writes", is_before
            with pytest.raises(st.InDoubtError) as caught:
                tx.commit()
            assert owner.outcome(caught.value.transaction_id) == outcome
            assert owner["t"].get(1)["v"] == value
        joined.close()


def test_a_closed_store_ends_its_transactions(both: Both) -> None:
    owner, _ = both
    joined = joined_to(owner)
    tx = joined.transaction()
    tx["t"].update(1, v=11)
    joined.close()
    with pytest.raises(st.ClosedError):
        tx["t"].get(1)
    with pytest.raises(st.ClosedError):
        tx.commit()
    assert owner["t"].get(1)["v"] == 10


@near
def test_rows_that_are_more_than_a_frame_holds_are_refused(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, joined = both
    joined.pool.hello["body_bytes_max"] = 100_000
    with pytest.raises(st.RequestError, match="at most 100000 bytes"), joined.transaction() as tx:
        tx["t"].upsert(pa.table({"id": range(20_000), "v": range(20_000)}))
    assert owner["t"].count() == 2


def test_64_mib_of_rows_in_one_commit_are_committed(both: Both) -> None:
    owner, joined = both
    many = 4 << 20
    with joined.transaction() as tx:
        tx["t"].upsert(pa.table({"id": range(many), "v": range(many)}))
    assert owner["t"].count() == many


def test_an_async_commit_is_seen_by_its_own_process_at_once(both: Both) -> None:
    _, joined = both
    for number in range(5):
        with joined.transaction(durability="async") as tx:
            tx["t"].update(1, v=number)
        assert joined["t"].get(1)["v"] == number
