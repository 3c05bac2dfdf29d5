"""First committer wins, whatever form the two writes have and wherever the first one is by then."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.choices import Isolation
from siltstone.engine.commit.recent_writes import Keys, RecentWrites
from tests.isolation.stores import with_two_rows

FEW, MANY = [3], list(range(3, 700))
KEY_TYPES = {
    "string": ({"k": "string", "v": "int64"}, "k", lambda n: {"k": f"ä{n}"}),
    "binary": ({"k": "binary", "v": "int64"}, "k", lambda n: {"k": b"\0%d" % n}),
    "date": ({"k": "date32", "v": "int64"}, "k", lambda n: {"k": dt.date.fromordinal(700_000 + n)}),
    "bigint": ({"k": "uint64", "v": "int64"}, "k", lambda n: {"k": (1 << 64) - 1 - n}),
    "pair": (
        {"r": "string", "v": "int64", "k": "int32"},
        ["r", "k"],
        lambda n: {"r": "eu", "k": n},
    ),
}


def rows(keys: list[int], value: int) -> pa.Table:
    return pa.table({"v": [value] * len(keys), "id": keys})


@pytest.mark.parametrize("first", [FEW, MANY], ids=["row", "batch"])
@pytest.mark.parametrize("second", [FEW, MANY], ids=["row", "batch"])
@pytest.mark.parametrize("first_verb", ["upsert", "delete"])
@pytest.mark.parametrize("second_verb", ["upsert", "delete"])
def test_rows_and_batches_conflict_in_all_directions(
    first: list[int], second: list[int], first_verb: str, second_verb: str
) -> None:
    db = with_two_rows()
    tx = db.transaction()
    write(tx["t"], second_verb, second, 2)
    write(db["t"], first_verb, first, 1)
    db.checkpoint()
    db.merge()
    with pytest.raises(st.ConflictError) as caught:
        tx.commit()
    assert (caught.value.read_seq, caught.value.written_seq) == (db.seq - 1, db.seq)
    assert db["t"].count("v = 2") == 0


def write(table, verb: str, keys: list[int], value: int) -> None:
    if verb == "upsert":
        table.upsert(rows(keys, value))
    else:
        table.delete(keys)


@pytest.mark.parametrize("second", [1, 600], ids=["row", "batch"])
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_conflict_on_a_key_that_python_has_no_value_for_is_one_conflict(
    isolation: Isolation, second: int
) -> None:
    """To name the key fails; it must neither hide the conflict nor leave the group in doubt."""
    db = with_two_rows()
    db.create_table("days", {"k": "date32", "v": "int64"}, primary_key="k")
    days = pa.array(range(1 << 30, (1 << 30) + second), pa.int32()).view(pa.date32())
    late = pa.table({"k": days, "v": [1] * second})
    tx = db.transaction(isolation=isolation)
    tx["days"].upsert(late)
    db["days"].upsert(late.slice(0, 1))
    with pytest.raises(st.ConflictError) as caught:
        tx.commit()
    assert caught.value.key == "*"
    db["days"].upsert(late)
    assert db["days"].count() == second


@pytest.mark.parametrize("second", [FEW, MANY], ids=["row", "batch"])
def test_keys_beside_a_batch_do_not_conflict_with_it(second: list[int]) -> None:
    db = with_two_rows()
    tx = db.transaction()
    tx["t"].upsert(rows(second, 2))
    db["t"].upsert(rows([key + 10_000 for key in MANY], 1))
    tx.commit()
    assert db["t"].count("v = 2") == len(second)


@pytest.mark.parametrize("kind", KEY_TYPES)
@pytest.mark.parametrize("first", [FEW, MANY], ids=["row", "batch"])
@pytest.mark.parametrize("second", [FEW, MANY], ids=["row", "batch"])
def test_keys_of_every_type_conflict_and_the_error_names_one(
    kind: str, first: list[int], second: list[int]
) -> None:
    db = with_two_rows()
    schema, key, make = KEY_TYPES[kind]
    table = db.create_table("k", schema, key)
    tx = db.transaction()
    tx["k"].upsert([make(n) | {"v": 2} for n in second])
    table.upsert([make(n) | {"v": 1} for n in first])
    db.checkpoint()
    with pytest.raises(st.ConflictError) as caught:
        tx.commit()
    assert caught.value.table == "k"
    assert table.count("v = 2") == 0


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_different_keys_of_every_type_do_not_conflict(kind: str) -> None:
    db = with_two_rows()
    schema, key, make = KEY_TYPES[kind]
    table = db.create_table("k", schema, key)
    tx = db.transaction()
    tx["k"].upsert([make(n) | {"v": 2} for n in range(600)])
    table.upsert([make(n) | {"v": 1} for n in range(600, 1200)])
    tx.commit()
    assert table.count() == 1200


def test_a_flushed_and_merged_delete_still_conflicts() -> None:
    db = with_two_rows()
    tx = db.transaction()
    tx["t"].update(1, v=11)
    db["t"].delete(1)
    db.checkpoint()
    db.merge()
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert db["t"].get(1) is None


def test_of_two_inserts_of_one_key_exactly_one_succeeds() -> None:
    db = with_two_rows()
    txs = [db.transaction(), db.transaction()]
    for value, tx in enumerate(txs):
        tx["t"].insert({"id": 5, "v": value})
    txs[0].commit()
    with pytest.raises(st.ConflictError):
        txs[1].commit()
    with pytest.raises(st.DuplicateKeyError):
        db["t"].insert({"id": 5, "v": 2})
    assert db["t"].get(5) == {"id": 5, "v": 0}


def test_an_insert_of_one_call_is_run_again_and_finds_the_winner() -> None:
    db = with_two_rows()
    with pytest.raises(st.DuplicateKeyError):
        db["t"].insert([{"id": 5, "v": 1}, {"id": 1, "v": 1}])
    assert db["t"].get(5) is None


def test_run_tries_again_after_a_conflict_and_gives_up_at_its_bound() -> None:
    db, values = with_two_rows(), iter(range(100))

    def lose(tx: st.Transaction) -> None:
        tx["t"].update(1, v=-1)
        db["t"].update(1, v=next(values))

    with pytest.raises(st.ConflictError):
        db.run(lose, attempts=3)
    assert db["t"].get(1) == {"id": 1, "v": 2}


def test_a_transaction_older_than_the_recent_writes_is_refused() -> None:
    recent = RecentWrites(bytes_max=1)
    recent.remember(1, 5, Keys(["a"]))
    recent.remember(1, 6, Keys(["b"]))
    recent.forget(4)
    assert recent.floor == 5
    assert recent.conflict(1, 5, Keys(["b"])) == ("b", 6)


def test_a_write_that_is_taken_back_leaves_the_one_before_it() -> None:
    recent = RecentWrites()
    for seq, keys in ((5, ["a", "b"]), (6, ["b"]), (7, ["a"]), (8, ["a", "c"])):
        recent.remember(1, seq, Keys(keys))
    recent.take_back(7)
    assert recent.conflict(1, 4, Keys(["a"])) == ("a", 5)
    assert recent.conflict(1, 5, Keys(["a"])) is None
    assert recent.conflict(1, 5, Keys(["b"])) == ("b", 6)
    assert recent.conflict(1, 5, Keys(["c"])) is None
    assert recent.keys_since(1, 5, 10) == (["b"], True)
    assert recent.written_since(1, 5) == 6
    recent.forget(6)
    assert recent.nbytes == 0


def test_keys_written_again_are_found_by_their_last_seq_in_its_order() -> None:
    recent = RecentWrites()
    for seq, keys in ((5, ["a", "b"]), (6, ["c"]), (7, ["a"])):
        recent.remember(1, seq, Keys(keys))
    recent.forget(5)
    assert recent.keys_since(1, 5, 10) == (["a", "c"], True)
    assert recent.keys_since(1, 5, 1) == (["a"], False)
    assert recent.keys_since(1, 6, 10) == (["a"], True)
    assert recent.conflict(1, 6, Keys(["a"])) == ("a", 7)
    assert recent.conflict(1, 4, Keys(["b"])) is None  # forgotten: nobody reads there


def test_tables_that_come_and_go_leave_a_bounded_trace_in_the_recent_writes() -> None:
    recent = RecentWrites()
    for incarnation in range(1, 5_000):
        recent.remember(incarnation, incarnation, Keys(["a"]))
        recent.forget(incarnation)
    assert recent.nbytes == 0
    assert len(recent._writes) < 2_000


def test_a_store_with_little_room_for_recent_writes_refuses_what_it_forgot() -> None:
    db = with_two_rows()
    db._core.recent._bytes_max = 1
    old = db.transaction()
    old["t"].upsert({"id": 9, "v": 9})
    for value in range(4):
        db["t"].upsert({"id": 1, "v": value})
    with pytest.raises(st.ConflictError):
        old.commit()
    fresh = db.transaction()
    fresh["t"].upsert({"id": 9, "v": 9})
    fresh.commit()
