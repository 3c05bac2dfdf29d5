"""A transaction of an earlier seq reads there, and commits if none of its keys changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import cast

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.local.store import LocalStore
from siltstone.local.transaction import LocalTransaction
from tests.server.stores import joined_to

KEYED = {"id": "int64", "v": "string"}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as db:
        db.create_table("t", KEYED, "id").upsert([{"id": n, "v": "old"} for n in range(10)])
        db.create_table("u", KEYED, "id").upsert([{"id": n, "v": "old"} for n in range(10)])
        db.create_table("p", {"n": "int64"}).append([{"n": n} for n in range(4)])
        yield db


def merged(db: st.Store) -> None:
    db.checkpoint()
    db.merge()


def vacuumed(db: st.Store) -> None:
    merged(db)
    db.vacuum(dry_run=False, grace_s=0)


@pytest.mark.parametrize(
    "between",
    [lambda _: None, lambda db: db.checkpoint(), merged, vacuumed],
    ids=["in memory", "flushed", "merged", "vacuumed"],
)
def test_keys_that_changed_since_conflict_and_others_do_not(
    db: st.Store, between: Callable[[st.Store], object]
) -> None:
    seq = db.seq
    changed = db["t"].upsert({"id": 3, "v": "new"}).seq
    db["t"].delete([4])
    between(db)
    with db.transaction(read_seq=seq) as tx:
        assert tx.read_seq == seq
        assert [row["v"] for row in map(tx["t"].get, (3, 4, 5)) if row] == ["old"] * 3
        tx["t"].upsert({"id": 5, "v": "mine"})
        tx["t"].delete([6])
    for work in (
        lambda tx: tx["t"].upsert({"id": 3, "v": "mine"}),
        lambda tx: tx["t"].update(3, v="mine"),
        lambda tx: tx["t"].delete([3, 9]),
        lambda tx: tx["t"].delete_where("id = 3"),
        lambda tx: tx["t"].truncate(),
    ):
        with (
            pytest.raises(st.ConflictError, match=rf"after our snapshot at seq {seq}") as caught,
            db.transaction(read_seq=seq) as tx,
        ):
            work(tx)
        assert (caught.value.table, caught.value.written_seq) == ("t", changed)
    assert db["t"].get(3) == {"id": 3, "v": "new"}
    assert db["t"].get(4) is None
    assert db["t"].get(5) == {"id": 5, "v": "mine"}


def test_a_key_that_came_since_conflicts_with_its_insert(db: st.Store) -> None:
    seq = db.seq
    db["t"].insert({"id": 77, "v": "theirs"})
    with pytest.raises(st.ConflictError), db.transaction(read_seq=seq) as tx:
        tx["t"].insert({"id": 77, "v": "mine"})
    with pytest.raises(st.DuplicateKeyError), db.transaction(read_seq=seq) as tx:
        tx["t"].insert({"id": 3, "v": "mine"})


def test_a_commit_while_it_is_open_conflicts_too(db: st.Store) -> None:
    seq = db.seq
    db["u"].upsert({"id": 1, "v": "new"})
    tx = db.transaction(read_seq=seq)
    tx["t"].upsert({"id": 1, "v": "mine"})
    db["t"].upsert({"id": 1, "v": "theirs"})
    with pytest.raises(st.ConflictError):
        tx.commit()
    with db.transaction(read_seq=seq) as tx:
        tx["t"].upsert({"id": 2, "v": "mine"})
        db["t"].upsert({"id": 8, "v": "theirs"})
    assert db["t"].get(2) == {"id": 2, "v": "mine"}


def test_what_other_tables_changed_is_no_conflict(db: st.Store) -> None:
    seq = db.seq
    db["u"].truncate()
    db["p"].append([{"n": 9}])
    with db.transaction(read_seq=seq) as tx:
        tx["t"].truncate()
    assert db["t"].count() == 0


@pytest.mark.parametrize("is_loaded", [False, True])
def test_staged_rows_conflict_by_their_keys(db: st.Store, is_loaded: bool) -> None:
    seq = db.seq
    theirs = pa.table({"id": range(100, 5_100), "v": ["theirs"] * 5_000})
    stage = db.stage("t")
    if is_loaded:
        with db.transaction() as tx:
            tx.attach(stage, [stage.run(theirs)])
    else:
        db["t"].upsert(theirs)
    for first, is_refused in ((5_100, False), (50, True)):
        mine = pa.table({"id": range(first, first + 3_000), "v": ["mine"] * 3_000})
        other = db.stage("t")
        pieces = [other.run(mine)]
        tx = db.transaction(read_seq=seq)
        tx.attach(other, pieces)
        if not is_refused:
            tx.commit()
            continue
        with pytest.raises(st.ConflictError, match="t"):
            tx.commit()
    assert db["t"].count("v = 'mine'") == 3_000
    assert db["t"].count("v = 'theirs'") == 5_000


def test_a_million_keys_that_others_wrote_are_looked_through(db: st.Store) -> None:
    seq, rows = db.seq, 1_000_000
    db["t"].upsert(pa.table({"id": range(100, 100 + rows), "v": ["theirs"] * rows}))
    db.checkpoint()
    db["t"].upsert({"id": 7, "v": "theirs"})
    for key, is_refused in ((5, False), (99 + rows, True), (7, True)):
        tx = db.transaction(read_seq=seq)
        tx["t"].upsert({"id": key, "v": "mine"})
        if not is_refused:
            tx.commit()
            continue
        with pytest.raises(st.ConflictError) as caught:
            tx.commit()
        assert (caught.value.table, caught.value.key) == ("t", key)


def test_a_commit_that_is_under_way_for_long_sees_what_vacuum_keeps_for_it(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False, retention_s=0) as db:
        db.create_table("t", KEYED, "id").upsert([{"id": n, "v": "old"} for n in range(10)])
        tx, other = (db.transaction(read_seq=db.seq) for _ in range(2))
        seq = db.seq
        db["t"].upsert({"id": 1, "v": "theirs"})
        early = db.transaction(read_seq=seq)
        for n in range(3):
            db["t"].upsert({"id": 2, "v": f"v{n}"})
            vacuumed(db)
        for each, key, is_refused in ((tx, 3, False), (other, 2, True), (early, 1, True)):
            each["t"].upsert({"id": key, "v": "mine"})
            if not is_refused:
                each.commit()
                continue
            with pytest.raises(st.ConflictError):
                each.commit()
        assert db["t"].get(1) == {"id": 1, "v": "theirs"}


@pytest.mark.parametrize(
    "change",
    [
        lambda db: db["t"].truncate(),
        lambda db: db["t"].add_column("w", "int64"),
        lambda db: db["t"].rename_column("v", "w"),
        lambda db: (db.drop_table("t"), db.create_table("t", KEYED, "id")),
    ],
    ids=["truncated", "column added", "column renamed", "made again"],
)
def test_a_table_that_is_another_by_now_conflicts_at_its_first_use(
    db: st.Store, change: Callable[[st.Store], object]
) -> None:
    seq = db.seq
    change(db)
    with pytest.raises(st.ConflictError, match="t"), db.transaction(read_seq=seq) as tx:
        tx["t"].get(1)


def test_a_renamed_table_goes_on_by_its_id(db: st.Store) -> None:
    seq, number = db.seq, db["t"].id
    db.rename_table("t", "renamed")
    with db.transaction(read_seq=seq) as tx:
        tx.table(number).upsert({"id": 1, "v": "mine"})
    assert db["renamed"].get(1) == {"id": 1, "v": "mine"}


def test_a_plain_table_conflicts_if_any_row_of_it_changed(db: st.Store) -> None:
    seq = db.seq
    for n in range(3):
        db["p"].append([{"n": n}])
    tx = db.transaction(read_seq=seq)
    assert tx["p"].count() == 4
    tx["p"].append([{"n": 100}])
    with pytest.raises(st.ConflictError, match="p"):
        tx.commit()
    seq = db.seq
    db.optimize("p")
    with db.transaction(read_seq=seq) as tx:
        assert tx["p"].delete_where("n = 3") == 1
    assert db["p"].count() == 6


@pytest.mark.parametrize(
    ("read", "is_refused"),
    [
        (lambda tx: tx["u"].get(3), True),
        (lambda tx: tx["u"].get(4), False),
        (lambda tx: tx["u"].count("id > 8"), True),
        (lambda tx: tx["p"].count(), True),
        (lambda tx: tx["t"].count("id > 8"), False),
    ],
)
def test_a_serializable_one_also_checks_what_it_read(
    db: st.Store, read: Callable[[st.Transaction], object], is_refused: bool
) -> None:
    seq = db.seq
    db["u"].upsert({"id": 3, "v": "new"})
    db["p"].append([{"n": 9}])
    tx = db.transaction(read_seq=seq, isolation="serializable")
    read(tx)
    tx["t"].upsert({"id": 1, "v": "mine"})
    if is_refused:
        with pytest.raises(st.ConflictError, match=f"after our snapshot at seq {seq}"):
            tx.commit()
    else:
        tx.commit()
    assert (db["t"].get(1) == {"id": 1, "v": "mine"}) is not is_refused


def test_what_the_store_no_longer_knows_is_a_conflict(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False, retention_s=0) as db:
        db.create_table("t", KEYED, "id").upsert({"id": 1, "v": "old"})
        seq = db.seq
        db.tag("kept", seq)
        for n in range(3):
            db["t"].upsert({"id": 2, "v": f"v{n}"})
            merged(db)
        db.vacuum(dry_run=False, grace_s=0)
        tx = db.transaction(read_seq=seq)
        assert tx["t"].get(1) == {"id": 1, "v": "old"}
        tx["t"].upsert({"id": 1, "v": "mine"})
        with pytest.raises(st.ConflictError, match="no longer knows"):
            tx.commit()


def _written(db: st.Store, random: Random) -> list[int]:
    """Commit something in one of many ways; return the keys that it wrote."""
    keys = random.sample(range(12), random.randint(1, 3))
    rows = [{"id": key, "v": str(random.random())} for key in keys]
    how = random.randrange(5)
    if how == 0:
        db["t"].delete(keys)
    elif how == 1:
        stage = db.stage("t")
        with db.transaction() as tx:
            tx.attach(stage, [stage.run(pa.Table.from_pylist(rows))])
    elif how == 2:
        db["t"].upsert(pa.Table.from_pylist(rows))
    else:
        db["t"].upsert(rows)
    return keys


@pytest.mark.parametrize("seed", range(6))
def test_a_commit_is_refused_exactly_if_a_key_of_it_was_written_since(
    tmp_path: Path, seed: int
) -> None:
    random, last = Random(seed), dict[int, int]()
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as db:
        db.create_table("t", KEYED, "id").upsert({"id": 11, "v": "old"})
        merged(db)  # a first load counts as all keys
        copies: dict[int, dict[int, str]] = {}
        upkeep = (db.checkpoint, db.merge, lambda: db.optimize(target_rows=8), lambda: None)
        outcomes = set[bool]()
        for _ in range(60):
            copies[db.seq] = {row["id"]: row["v"] for row in db["t"].scan().read_all().to_pylist()}
            for key in _written(db, random):
                last[key] = db.seq
            random.choice(upkeep)()
            seq, keys = random.choice([*copies][-8:]), random.sample(range(12), 2)
            tx = db.transaction(read_seq=seq)
            assert {key: row["v"] for key in range(12) if (row := tx["t"].get(key))} == copies[seq]
            for key in keys:
                tx["t"].upsert({"id": key, "v": "mine"})
            if random.random() < 0.3:
                for key in _written(db, random):
                    last[key] = db.seq
            wanted = any(last.get(key, 0) > seq for key in keys)
            outcomes.add(wanted)
            try:
                tx.commit()
                is_refused = False
                last |= dict.fromkeys(keys, tx.seq)
            except st.ConflictError:
                is_refused = True
            assert is_refused == wanted, (seq, keys, last)
        assert outcomes == {True, False}


def test_a_seq_that_is_none_is_refused(db: st.Store) -> None:
    for wrong in (db.seq + 1, -1):
        with pytest.raises(st.SnapshotExpiredError, match=f"seq {wrong}"):
            db.transaction(read_seq=wrong)
    for wrong in ("7", 7.0, True):
        with pytest.raises(st.RequestError, match="a seq must be an integer"):
            db.transaction(read_seq=wrong)  # type: ignore[arg-type]
    assert not db._core.under_way  # type: ignore[attr-defined]


def test_a_process_that_joins_has_them(db: st.Store) -> None:
    seq = db.seq
    db["t"].upsert({"id": 3, "v": "new"})
    with joined_to(db) as joined:
        with joined.transaction(read_seq=seq) as tx:
            assert (tx.read_seq, tx["t"].get(3)) == (seq, {"id": 3, "v": "old"})
            tx["t"].upsert({"id": 4, "v": "mine"})
        with pytest.raises(st.ConflictError), joined.transaction(read_seq=seq) as tx:
            tx["t"].upsert({"id": 3, "v": "mine"})
    assert db["t"].get(4) == {"id": 4, "v": "mine"}


@pytest.mark.parametrize(
    ("change", "count"),
    [
        (lambda tx: tx["t"].truncate(), 1),
        (lambda tx: (tx.drop_table("t"), tx.create_table("t", KEYED, "id")), 1),
        (lambda tx: tx["t"].add_column("w", "int64"), 11),
        (lambda tx: (tx.rename_table("t", "x"), tx.rename_table("x", "t")), 11),
    ],
    ids=["truncated", "made again", "column added", "renamed"],
)
def test_own_changes_of_a_definition_are_no_conflict(
    db: st.Store, change: Callable[[st.Transaction], object], count: int
) -> None:
    seq = db.seq
    for n in range(3):
        db["u"].upsert({"id": n, "v": "theirs"})
    with db.transaction(read_seq=seq) as tx:
        change(tx)
        tx["t"].upsert({"id": 77, "v": "mine"}, missing="null")
        assert tx["t"].count() == count
        tx.create_table("n", KEYED, "id").upsert({"id": 1, "v": "mine"})
        assert tx["n"].count() == 1
        tx["p"].truncate()
        tx["p"].append([{"n": 1}])
        assert tx["p"].count() == 1
    assert [db[name].count() for name in ("t", "n", "p")] == [count, 1, 1]


def test_staged_rows_take_the_place_of_all_rows_at_the_seq(db: st.Store) -> None:
    seq = db.seq
    db["u"].upsert({"id": 1, "v": "theirs"})
    for name in ("t", "u"):
        stage = db.stage(name)
        pieces = [stage.run(pa.table({"id": [1, 2], "v": ["mine"] * 2}))]
        tx = db.transaction(read_seq=seq)
        tx.attach(stage, pieces, overwrite=True)
        if name == "t":
            tx.commit()
            continue
        with pytest.raises(st.ConflictError, match="u"):
            tx.commit()
    assert (db["t"].count(), db["u"].count()) == (2, 10)


def test_a_plain_table_is_written_as_it_is_read_at_the_seq(db: st.Store) -> None:
    seq = db.seq
    db["p"].delete_where("n = 3")
    db["p"].append([{"n": n} for n in range(10, 15)])
    for work, rows in (
        (lambda tx: tx["p"].delete_where("n = 3"), 3),
        (lambda tx: tx["p"].append([{"n": 7}]), 5),
        (lambda tx: tx["p"].update_where("n = 3", {"n": 8}), 4),
    ):
        tx = db.transaction(read_seq=seq)
        assert work(tx) == 1
        assert tx["p"].count() == rows
        with pytest.raises(st.ConflictError, match="p"):
            tx.commit()
    assert db["p"].count() == 8


def test_an_optimize_does_not_hide_a_change_that_vacuum_forgot(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False, retention_s=0) as db:
        db.create_table("t", KEYED, "id")
        db.create_table("p", {"n": "int64"}).append([{"n": 1}])
        seq = db["p"].append([{"n": 2}]).seq
        db.tag("kept", seq)
        db["p"].append([{"n": 100}])
        db.optimize("p")
        for n in range(3):
            db["t"].upsert({"id": 2, "v": f"v{n}"})
            vacuumed(db)
        tx = db.transaction(read_seq=seq)
        tx["p"].append([{"n": tx["p"].count()}])
        with pytest.raises(st.ConflictError, match="no longer knows"):
            tx.commit()
        assert db["p"].count() == 3


def test_a_token_that_was_applied_since_returns_its_receipt(db: st.Store) -> None:
    seq, receipts = db.seq, list[st.Receipt]()
    for is_applied in (False, True):
        with db.transaction(read_seq=seq, token=("app", 1)) as tx:
            assert tx.is_applied == is_applied
            tx["t"].insert({"id": 77, "v": "mine"})
            tx["t"].upsert({"id": 1, "v": "mine"})
            tx.create_table("n", KEYED, "id").upsert({"id": 1, "v": "mine"})
            tx["u"].truncate()
            tx["p"].append([{"n": 1}])
        assert tx.receipt is not None
        receipts.append(tx.receipt)
        db["t"].upsert({"id": 1, "v": "theirs"})
    assert receipts[0].seq == receipts[1].seq
    assert db["p"].count() == 5
    assert db["t"].get(1) == {"id": 1, "v": "theirs"}


def test_a_name_that_another_table_had_at_the_seq_is_a_conflict(db: st.Store) -> None:
    seq = db.seq
    for name, new_name in (("t", "other"), ("u", "t"), ("other", "u")):
        db.rename_table(name, new_name)
    for work in (
        lambda tx: tx["t"].get(1),
        lambda tx: tx.sql("SELECT * FROM t"),
        lambda tx: tx.drop_table("t"),
        lambda tx: tx.rename_table("t", "x"),
    ):
        with pytest.raises(st.ConflictError, match="t"), db.transaction(read_seq=seq) as tx:
            work(tx)
    with db.transaction(read_seq=seq) as tx:
        tx.table(db["t"].id).upsert({"id": 1, "v": "mine"})
    assert db["t"].get(1) == {"id": 1, "v": "mine"}


def test_a_tagged_seq_stays_readable_whatever_becomes_of_the_tag(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False, retention_s=0) as db:
        seq = db.create_table("t", KEYED, "id").upsert({"id": 1, "v": "old"}).seq
        merged(db)
        db.tag("kept", seq)
        for n in range(3):
            db["t"].upsert({"id": 1, "v": f"v{n}"})
            vacuumed(db)
        tx = db.transaction(read_seq=seq)
        db.untag("kept")
        for n in range(3):
            db["t"].upsert({"id": 1, "v": f"v{n}"})
            vacuumed(db)
        assert tx["t"].get(1) == {"id": 1, "v": "old"}
        tx.rollback()
        db["t"].upsert({"id": 1, "v": "new"})
        vacuumed(db)
        vacuumed(db)
        with pytest.raises(st.SnapshotExpiredError):
            db.transaction(read_seq=seq)


@pytest.mark.parametrize("is_committed", [True, False])
def test_one_that_ended_keeps_nothing_from_vacuum(tmp_path: Path, is_committed: bool) -> None:
    with st.connect(tmp_path / "db", background=False, retention_s=0) as db:
        seq = db.create_table("t", KEYED, "id").upsert({"id": 1, "v": "old"}).seq
        merged(db)
        db["t"].upsert({"id": 2, "v": "new"})
        leased = [*(tmp_path / "db" / "manifest").glob("*.json")]
        tx = db.transaction(read_seq=seq)
        tx["t"].upsert({"id": 3, "v": "mine"})
        (tx.commit if is_committed else tx.rollback)()
        for n in range(3):
            db["t"].upsert({"id": 1, "v": f"v{n}"})
            vacuumed(db)
        assert not any(record.exists() for record in leased)
        assert tx.read_seq == seq


def test_a_refused_seq_leaves_no_transaction_open(db: st.Store) -> None:
    with pytest.raises(st.SnapshotExpiredError) as caught:  # it holds on to the half-made one
        db.transaction(read_seq=db.seq + 1, token=("app", 1))
    assert caught.value is not None
    assert db._core.transactions.count == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["t", "p"])
def test_versions_for_other_clients_are_those_of_the_seq(db: st.Store, name: str) -> None:
    def newest(tx: LocalTransaction, called: str = name) -> object:
        found = tx.lance.versions(called)
        assert found.name == called
        return found.newest

    store = cast("LocalStore", db)
    merged(db)
    if name == "t":
        db["u"].upsert({"id": 1, "v": "theirs"})
    seq = db.seq
    with store.transaction() as tx:
        before = newest(tx)
    if name == "t":
        db["t"].upsert({"id": 1, "v": "theirs"})
        merged(db)
    else:
        db["p"].append([{"n": 9}])
    with store.transaction(read_seq=seq) as tx:
        assert newest(tx) == before
        tx.rename_table(name, "own")
        assert newest(tx, "own") == before
        tx["own"].note({"a": "b"})
        assert newest(tx, "own") == before
        assert tx["own"].count() == {"t": 10, "p": 4}[name]
        tx.rollback()
    with store.transaction() as tx:
        assert newest(tx) != before
