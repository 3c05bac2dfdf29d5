"""What any number of processes staged becomes visible by one commit: whole, once, or not at all.

Over 400 lines: each kind of task, good and bad, against the same few stores.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from siltstone.engine.write import bulk
from siltstone.engine.write.stage_task import sorter_of
from siltstone.storage.files.files import Files
from siltstone.storage.tables.keys import staged_keys
from tests.engine import piece_writer
from tests.maintenance.stores import Clock, open_store

SCHEMA = {"id": "int64", "name": "string", "amount": "int64"}


def batch(ids: list[int], amount: int = 1, **columns: list) -> pa.RecordBatch:
    name = pa.nulls(len(ids), pa.string())
    return pa.record_batch({"id": ids, "amount": [amount] * len(ids), "name": name, **columns})


@pytest.fixture(params=["fake", "lance", "keys"])
def real_lance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "keys":  # those of few rows, too, are staged, and merged at the attach
        monkeypatch.setattr(staged_keys, "ROWS_MIN", 1)
        monkeypatch.setattr(bulk, "COVERED_ROWS_MIN", 1)
    return request.param == "lance"


@pytest.fixture
def db(tmp_path: Path, real_lance: bool) -> Iterator[Store]:
    with open_store(tmp_path / "s", real_lance=real_lance) as store:
        store.create_table("t", SCHEMA, primary_key="id")
        store.create_table("p", SCHEMA)
        yield store


def piece(db: Store, stage: st.StageTask, *batches: pa.RecordBatch) -> st.Staged:
    """Write a piece as another process would: from pickled bytes, and to them."""
    task: st.StageTask = pickle.loads(pickle.dumps(stage))
    tables = db._core.tables
    written = task.run_through(tables.writer, list(batches), 0, sorter_of(task, tables.keys))
    return pickle.loads(pickle.dumps(written))


def commit(db: Store, *jobs: tuple[st.StageTask, list[st.Staged]], **options: object) -> st.Receipt:
    with db.transaction(**options) as tx:  # type: ignore[arg-type]
        for stage, pieces in jobs:
            tx.attach(stage, pieces)
    assert tx.receipt is not None
    return tx.receipt


def put(db: Store, op: str | None, *batches: pa.RecordBatch, name: str = "t") -> st.Receipt:
    stage = db.stage(name, op)
    return commit(db, (stage, [piece(db, stage, each) for each in batches]))


def amounts(source: object, name: str = "t") -> dict[int, int]:
    rows = source[name].to_arrow()  # type: ignore[index]
    found = dict(zip(rows["id"].to_pylist(), rows["amount"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows == source[name].count()  # type: ignore[index]
    return found


def through_all_levels(db: Store, expected: dict[int, int], name: str = "t") -> None:
    """The answer is the same before and after a checkpoint and a merge, here and beside."""
    for step in (lambda: None, db.checkpoint, db.merge):
        step()
        assert amounts(db, name) == expected


# --- keyed tables


def test_pieces_of_many_writers_are_one_commit(db: Store) -> None:
    db["t"].upsert([{"id": 1, "amount": 0}, {"id": 9, "amount": 0}], missing="null")
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([1, 2]), batch([3])), piece(db, stage, batch([4, 5]))]
    assert amounts(db) == {1: 0, 9: 0}
    receipt = commit(db, (stage, pieces))
    assert (receipt.seq, receipt.rows) == (db.seq, 5)
    expected = {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 9: 0}
    through_all_levels(db, expected)
    with db.snapshot(seq=receipt.seq - 1) as before:
        assert amounts(before) == {1: 0, 9: 0}


def test_a_table_without_a_row_version_gets_them_as_its_base(db: Store) -> None:
    put(db, "insert", batch([3, 1]), batch([2]))
    (levels,) = (lv for lv in db._core.state().view.levels.values() if lv.base is not None)
    assert levels.sealed == levels.flushed == ()
    through_all_levels(db, {1: 1, 2: 1, 3: 1})


def test_a_first_base_falls_back_when_the_table_got_rows_since_it_was_staged(db: Store) -> None:
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([1, 2]))]
    db["t"].upsert({"id": 2, "amount": 0}, missing="null")
    db["t"].upsert({"id": 3, "amount": 0}, missing="null")
    commit(db, (stage, pieces))
    through_all_levels(db, {1: 1, 2: 1, 3: 0})


def test_a_first_base_that_loses_the_race_to_the_commit_is_a_conflict_and_may_come_again(
    db: Store,
) -> None:
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([1, 2]))]
    tx = db.transaction()
    tx.attach(stage, pieces)
    db["t"].upsert({"id": 2, "amount": 0}, missing="null")
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert amounts(db) == {2: 0}
    commit(db, (stage, pieces))
    through_all_levels(db, {1: 1, 2: 1})


def test_of_two_jobs_that_were_staged_for_the_first_base_both_are_there(db: Store) -> None:
    first, second = db.stage("t"), db.stage("t")
    pieces = [piece(db, first, batch([1, 2], 1))], [piece(db, second, batch([2, 3], 2))]
    commit(db, (first, pieces[0]))
    for _ in range(2):  # tried again it is written anew, in the same folder
        tx = db.transaction()
        tx.attach(second, pieces[1])
        tx.rollback()
    commit(db, (second, pieces[1]))
    through_all_levels(db, {1: 1, 2: 2, 3: 2})


def test_equal_keys_are_refused_by_name_without_an_order(db: Store) -> None:
    db["t"].upsert({"id": 7, "amount": 0}, missing="null")
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([1, 2])), piece(db, stage, batch([2, 3]))]
    with pytest.raises(st.DuplicateKeyError) as told:
        commit(db, (stage, pieces))
    assert told.value.key == 2
    assert amounts(db) == {7: 0}


@pytest.mark.parametrize("is_first", [True, False])
def test_of_equal_keys_the_last_by_the_order_counts(db: Store, is_first: bool) -> None:
    if not is_first:
        db["t"].upsert({"id": 7, "amount": 0}, missing="null")
    stage = db.stage("t", order_by="amount", missing="null")
    pieces = [
        piece(db, stage, batch([1, 2, 5], 5), batch([2, 4], 3)),
        piece(db, stage, pa.record_batch({"id": [1, 4, 5], "amount": pa.array([9, 2, None])})),
    ]
    receipt = commit(db, (stage, pieces))
    assert receipt.rows == 4
    through_all_levels(db, {1: 9, 2: 5, 4: 3, 5: 5} | ({} if is_first else {7: 0}))


def test_text_keys_that_are_equal_are_found_by_the_keys_themselves(db: Store) -> None:
    db.create_table("n", {"name": "string", "rank": "int64"}, primary_key="name")
    stage = db.stage("n", order_by="rank")
    rows = [pa.record_batch({"name": ["a", "b", "a"], "rank": [1, 2, 3]})]
    commit(db, (stage, [piece(db, stage, *rows)]))
    assert sorted(r["rank"] for r in db["n"].to_arrow().to_pylist()) == [2, 3]
    stage = db.stage("n", "insert")
    with pytest.raises(st.DuplicateKeyError) as told:
        commit(db, (stage, [piece(db, stage, pa.record_batch({"name": ["c", "b"]}))]))
    assert told.value.key == "b"


def test_an_insert_over_a_key_that_lives_is_refused(db: Store) -> None:
    db["t"].upsert([{"id": n, "amount": 0} for n in range(5)], missing="null")
    db.checkpoint()
    db.merge()
    db["t"].delete(3)
    put(db, "insert", batch([3, 10]))
    with pytest.raises(st.DuplicateKeyError) as told:
        put(db, "insert", batch([11, 4]))
    assert told.value.key == 4
    through_all_levels(db, {0: 0, 1: 0, 2: 0, 3: 1, 4: 0, 10: 1})


def test_a_delete_needs_the_key_alone_and_forgives_repeats(db: Store) -> None:
    db["t"].upsert([{"id": n, "amount": 0} for n in range(6)], missing="null")
    db.checkpoint()
    put(db, "delete", pa.record_batch({"id": [1, 2, 99]}), batch([2, 4]))
    through_all_levels(db, {0: 0, 3: 0, 5: 0})


def test_an_overwrite_empties_the_table_it_was_staged_for_whatever_that_is_called_now(
    db: Store,
) -> None:
    put(db, None, batch([1, 2]))
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([7], 5))]
    db.rename_table("t", "renamed")
    db.create_table("t", {"id": "int64", "amount": "int64"}, primary_key="id")
    db["t"].upsert([{"id": 5, "amount": 9}])
    with db.transaction() as tx:
        assert tx.attach(stage, pieces, overwrite=True) == 1
    assert amounts(db, "renamed") == {7: 5}
    assert amounts(db) == {5: 9}


def test_a_truncate_before_it_makes_it_an_overwrite_of_several_tables_at_once(db: Store) -> None:
    put(db, None, batch([1, 2]))
    put(db, None, batch([1, 2]), name="p")
    keyed, plain = db.stage("t"), db.stage("p")
    pieces = [piece(db, keyed, batch([2, 3], 5))], [piece(db, plain, batch([7], 5))]
    with db.transaction() as tx:
        tx["t"].truncate()
        tx["p"].truncate()
        assert tx.attach(keyed, pieces[0]) == 2
        assert tx.attach(plain, pieces[1]) == 1
    through_all_levels(db, {2: 5, 3: 5})
    through_all_levels(db, {7: 5}, "p")
    with db.snapshot(seq=tx.seq - 1) as before:
        assert amounts(before) == amounts(before, "p") == {1: 1, 2: 1}
    put(db, None, batch([8]), name="p")
    assert amounts(db, "p") == {7: 5, 8: 1}


def test_a_token_lets_it_in_once(db: Store) -> None:
    stage = db.stage("t", "insert")
    pieces = [piece(db, stage, batch([1, 2]))]
    first = commit(db, (stage, pieces), token=("etl", 4))
    again = db.stage("t", "insert")
    second = commit(db, (again, [piece(db, again, batch([1, 2]))]), token=("etl", 4))
    assert (first.seq, first.rows) == (second.seq, second.rows)
    assert amounts(db) == {1: 1, 2: 1}


def test_a_concurrent_writer_of_one_of_its_keys_is_a_conflict(db: Store) -> None:
    db["t"].upsert({"id": 9, "amount": 0}, missing="null")
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([1, 2]))]
    tx = db.transaction()
    tx.attach(stage, pieces)
    db["t"].upsert({"id": 3, "amount": 0}, missing="null")
    db["t"].upsert({"id": 2, "amount": 0}, missing="null")
    with pytest.raises(st.ConflictError):
        tx.commit()
    tx = db.transaction()
    tx["t"].upsert({"id": 1, "amount": 4}, missing="null")
    commit(db, (stage, pieces))
    with pytest.raises(st.ConflictError):
        tx.commit()
    through_all_levels(db, {1: 1, 2: 1, 3: 0, 9: 0})


def test_a_column_that_came_since_is_null_and_one_that_went_refuses_the_rows(db: Store) -> None:
    db["t"].upsert({"id": 9, "amount": 0}, missing="null")
    stage = db.stage("t", missing="null")
    pieces = [piece(db, stage, batch([1]))]
    db["t"].add_column("note", "string")
    commit(db, (stage, pieces))
    assert db["t"].get(1) == {"id": 1, "name": None, "amount": 1, "note": None}
    stage = db.stage("t", missing="null")
    pieces = [piece(db, stage, batch([2]))]
    db["t"].drop_column("name")
    with pytest.raises(st.SchemaMismatchError, match="stage them again"):
        commit(db, (stage, pieces))
    through_all_levels(db, {1: 1, 9: 0})


@pytest.mark.parametrize("is_first", [True, False])
def test_rows_staged_before_a_truncate_come_after_it(db: Store, is_first: bool) -> None:
    if not is_first:
        db["t"].upsert({"id": 9, "amount": 0}, missing="null")
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([1]))]
    db["t"].truncate()
    commit(db, (stage, pieces))
    through_all_levels(db, {1: 1})


def test_the_change_feed_shows_them_at_their_one_seq(db: Store) -> None:
    db["t"].upsert({"id": 9, "amount": 0}, missing="null")
    seq = put(db, None, batch([1, 2])).seq
    last = put(db, "delete", pa.record_batch({"id": [1]})).seq
    for step in (lambda: None, db.checkpoint, db.merge):
        step()
        found = db.changes(since=seq - 1)["t"].read_all().to_pylist()
        assert [(r["_seq"], r["_op"], r["id"], r["amount"]) for r in found] == [
            (seq, "upsert", 1, 1), (seq, "upsert", 2, 1), (last, "delete", 1, None),
        ]  # fmt: skip


def test_a_reopened_store_and_a_reader_beside_see_them(
    db: Store, tmp_path: Path, real_lance: bool
) -> None:
    put(db, None, batch([1, 2]))
    put(db, None, batch([2, 3], 2))
    put(db, "delete", batch([1]))
    put(db, None, batch([1, 2]), name="p")
    with open_store(tmp_path / "s", read_only=True, real_lance=real_lance) as beside:
        assert amounts(beside) == {2: 2, 3: 2}
        assert amounts(beside, "p") == {1: 1, 2: 1}
    db.close()
    with open_store(tmp_path / "s", real_lance=real_lance) as again:
        through_all_levels(again, {2: 2, 3: 2})
        assert amounts(again, "p") == {1: 1, 2: 1}


def test_a_transaction_may_do_other_things_besides_but_not_to_the_same_rows(db: Store) -> None:
    db["t"].upsert({"id": 9, "amount": 0}, missing="null")
    db.create_table("u", SCHEMA, primary_key="id")
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([1]))]
    with db.transaction() as tx:
        tx["u"].upsert({"id": 5, "amount": 5}, missing="null")
        tx.attach(stage, pieces)
        for use in (
            lambda t: t["t"].get(1),
            lambda t: t["t"].upsert({"id": 1}),
            lambda t: t["t"].add_column("x", "int64"),
        ):
            with pytest.raises(st.RequestError):
                use(tx)
    assert (amounts(db), amounts(db, "u")) == ({1: 1, 9: 0}, {5: 5})
    with db.transaction() as tx:
        tx["t"].upsert({"id": 1, "amount": 2}, missing="null")
        with pytest.raises(st.RequestError):
            tx.attach(stage, pieces)
    assert amounts(db) == {1: 2, 9: 0}


@pytest.mark.parametrize("is_first", [True, False])
def test_several_jobs_of_one_table_follow_each_other_in_one_commit(
    db: Store, tmp_path: Path, real_lance: bool, is_first: bool
) -> None:
    if not is_first:
        db["t"].upsert({"id": 7, "amount": 0}, missing="null")
    jobs = [db.stage("t"), db.stage("t", "delete"), db.stage("t")]
    rows = [batch([1, 2, 3, 7]), batch([2, 3]), batch([3, 4], 5)]
    pieces = [[piece(db, job, each)] for job, each in zip(jobs, rows, strict=True)]
    late = db.stage("t", "insert")
    written = [piece(db, late, batch([9]))]
    with db.transaction() as tx:
        for job, each in zip(jobs, pieces, strict=True):
            tx.attach(job, each)
        with pytest.raises(st.RequestError, match="must be attached before"):
            tx.attach(late, written)
    expected = {1: 1, 3: 5, 4: 5, 7: 1}
    assert amounts(db) == expected
    db.close()
    with open_store(tmp_path / "s", real_lance=real_lance) as again:
        through_all_levels(again, expected)


def test_without_a_row_nothing_is_committed(db: Store) -> None:
    seq = db.seq
    stage = db.stage("t")
    assert commit(db, (stage, [piece(db, stage), piece(db, stage, batch([]))])).rows == 0
    assert db.seq == seq


def test_a_rollback_leaves_nothing_but_files(db: Store) -> None:
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([1]))]
    tx = db.transaction()
    tx.attach(stage, pieces)
    tx.rollback()
    assert db["t"].count() == 0
    commit(db, (stage, pieces))
    assert amounts(db) == {1: 1}


# --- plain tables


def test_appends_meet_other_appends_and_lose_none(db: Store) -> None:
    stage = db.stage("p")
    pieces = [piece(db, stage, batch([1])), piece(db, stage, batch([2]))]
    tx = db.transaction()
    assert tx.attach(stage, pieces) == 2
    assert amounts(tx, "p") == {1: 1, 2: 1}
    db["p"].append([{"id": 3, "amount": 0}])
    tx.commit()
    put(db, "append", batch([4]), name="p")
    through_all_levels(db, {1: 1, 2: 1, 3: 0, 4: 1}, "p")


def test_an_append_to_a_table_that_was_truncated_since_says_so(db: Store) -> None:
    put(db, None, batch([1]), name="p")
    stage = db.stage("p")
    pieces = [piece(db, stage, batch([2]))]
    db["p"].truncate()
    db["p"].append([{"id": 3, "amount": 0}])
    with pytest.raises(st.RequestError, match="stage again"):
        commit(db, (stage, pieces))
    assert amounts(db, "p") == {3: 0}


def test_columns_that_changed_since_do_not_take_staged_rows_for_others(db: Store) -> None:
    put(db, None, batch([1]), name="p")
    stage = db.stage("p")
    pieces = [piece(db, stage, batch([2]))]
    db["p"].rename_column("amount", "total")
    with pytest.raises(st.SchemaMismatchError):
        commit(db, (stage, pieces))
    assert db["p"].to_arrow().to_pylist() == [{"id": 1, "name": None, "total": 1}]


# --- requests


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"id": [1, None]}, "'id' may not be null"),
        ({"amount": [1]}, "'id' may not be null"),
        ({"id": ["x"]}, "'id' is int64, not string"),
        ({"id": [1], "what": [2]}, "what"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(db: Store, rows: dict, said: str) -> None:
    stage = db.stage("t")
    with pytest.raises(st.SchemaMismatchError, match=said):
        piece(db, stage, pa.record_batch(rows))


@pytest.mark.parametrize(
    "ask",
    [
        lambda db: db.stage("nope"),
        lambda db: db.stage("t", "append"),
        lambda db: db.stage("p", "upsert"),
        lambda db: db.stage("t", order_by="nope"),
        lambda db: db.stage("t", "delete", order_by="amount"),
        lambda db: db.stage("p", order_by="amount"),
        lambda db: db.stage("t").run_through(db._core.tables.writer, [{"id": 1}]),
        lambda db: db.stage("t").run_through(db._core.tables.writer, 7),
    ],
)
def test_requests_that_make_no_sense_are_refused(db: Store, ask: Callable[[Store], object]) -> None:
    with pytest.raises(st.RequestError):
        ask(db)


def test_pieces_of_another_job_or_given_twice_are_refused(db: Store) -> None:
    stage, other = db.stage("t"), db.stage("t")
    mine, others = piece(db, stage, batch([1])), piece(db, other, batch([2]))
    for pieces in ([mine, others], [mine, mine], ["x"]):
        with pytest.raises(st.RequestError):
            commit(db, (stage, pieces))  # type: ignore[arg-type]
    assert db["t"].count() == 0


# --- what is never committed


def discard(db: Store, stage: st.StageTask, *pieces: st.Staged) -> bool:
    return stage.discard_through(db._core.files, db.path, pieces)


@pytest.mark.parametrize("name", ["t", "p"])
def test_a_discarded_job_is_gone_and_cannot_be_attached(db: Store, name: str) -> None:
    stage = db.stage(name)
    written = piece(db, stage, batch([1]))
    assert discard(db, stage, written)
    assert not any((db.path / file.path).exists() for file in written.files.files)
    assert not discard(db, stage, written)
    with pytest.raises(st.RequestError, match="stage it again"):
        commit(db, (stage, [written]))


@pytest.mark.parametrize("name", ["t", "p"])
def test_what_a_transaction_has_tried_to_attach_is_not_discarded(db: Store, name: str) -> None:
    stage = db.stage(name)
    written = piece(db, stage, batch([1]))
    commit(db, (stage, [written]))
    assert not discard(db, stage, written)
    assert amounts(db, name) == {1: 1}


class UnsyncedFiles:
    """Files whose first sync of a directory fails; they note the others."""

    def __init__(self, real: Files) -> None:
        self._real = real
        self.synced: list[Path] | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def sync_dir(self, path: Path) -> None:
        if self.synced is None:
            self.synced = []
            raise OSError(5, os.strerror(5), str(path))
        self._real.sync_dir(path)
        self.synced.append(path)


@pytest.mark.parametrize("name", ["t", "p"])
def test_a_job_whose_mark_could_not_be_synced_is_attached_only_once_it_is(
    db: Store, name: str
) -> None:
    """Else a power cut brings OPEN back, and a discard after it deletes committed rows."""
    stage = db.stage(name)
    written = piece(db, stage, batch([1]))
    files = UnsyncedFiles(db._core.files)
    with pytest.raises(st.UnavailableError):
        stage.joined(files, db.path, [written])  # type: ignore[arg-type]
    assert stage.joined(files, db.path, [written]).rows == 1  # type: ignore[arg-type]
    assert files.synced == [db.path / stage.marks]


class RacedFiles:
    """Files where somebody else does the next rename first."""

    def __init__(self, real: Files) -> None:
        self._real = real

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def rename(self, old: Path, new: Path) -> None:
        self._real.rename(old, new)
        self._real.rename(old, new)


def test_of_two_transactions_that_attach_a_job_at_once_both_may_try(db: Store) -> None:
    stage = db.stage("t")
    written = piece(db, stage, batch([1]))
    assert stage.joined(RacedFiles(db._core.files), db.path, [written]).rows == 1  # type: ignore[arg-type]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize("name", ["t", "p", "first"])
def test_vacuum_takes_a_dead_job_after_the_grace_period_and_only_then(
    tmp_path: Path, clock: Clock, name: str
) -> None:
    with open_store(tmp_path / "s", clock, retention_s=0) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db.create_table("p", SCHEMA)
        db.create_table("first", SCHEMA, primary_key="id")
        db["t"].upsert({"id": 7, "amount": 7}, missing="null")
        stage = db.stage(name)
        dead = piece(db, stage, batch([1]))
        clock.move(days=0.5)
        db["t"].upsert({"id": 8, "amount": 7}, missing="null")
        db.checkpoint()
        db.vacuum(dry_run=False)
        assert all((db.path / file.path).exists() for file in dead.files.files)
        clock.move(days=1)
        db["t"].upsert({"id": 8, "amount": 7}, missing="null")
        db.checkpoint()
        db.vacuum(dry_run=False)
        assert not any((db.path / file.path).exists() for file in dead.files.files)
        assert not (db.path / stage.marks).exists()
        with pytest.raises(st.RequestError, match="stage it again"):
            commit(db, (stage, [dead]))
        assert amounts(db) == {7: 7, 8: 7}


def test_vacuum_spares_what_a_frame_alone_names(tmp_path: Path, clock: Clock) -> None:
    with open_store(tmp_path / "s", clock, retention_s=0) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db["t"].upsert({"id": 7, "amount": 7}, missing="null")
        stage = db.stage("t")
        pieces = [piece(db, stage, batch([1]))]
        clock.move(days=3)  # later than the grace period, so a checkpoint dates behind the files
        db.checkpoint()
        commit(db, (stage, pieces))
        clock.move(days=3)
        db.vacuum(dry_run=False)
        db.close()
        with open_store(tmp_path / "s", clock, retention_s=0) as again:
            through_all_levels(again, {1: 1, 7: 7})


@pytest.mark.parametrize("is_real", [False, True])
def test_an_overwritten_table_outlives_the_past_that_its_files_were_staged_beside(
    tmp_path: Path, clock: Clock, is_real: bool
) -> None:
    with open_store(tmp_path / "s", clock, real_lance=is_real, retention_s=0) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db.create_table("p", SCHEMA)
        for step in range(3):
            jobs = [(db.stage(name), name) for name in ("t", "p")]
            written = [[piece(db, stage, batch([step, 9], step))] for stage, _ in jobs]
            with db.transaction() as tx:
                for (stage, name), pieces in zip(jobs, written, strict=True):
                    tx[name].truncate()
                    tx.attach(stage, pieces)
            db["p"].append([{"id": 50, "amount": 5}])
            db.checkpoint()
            db.merge()
            clock.move(days=3)
            db["t"].upsert({"id": 50, "amount": 5}, missing="null")
            db.checkpoint()
            db.vacuum(dry_run=False)
            for name in ("t", "p"):
                assert amounts(db, name) == {step: step, 9: step, 50: 5}
        assert db.verify(deep=True).is_sound
        db.close()
    with open_store(tmp_path / "s", clock, real_lance=is_real, retention_s=0) as db:
        assert amounts(db) == amounts(db, "p") == {2: 2, 9: 2, 50: 5}


# --- other processes


def test_processes_of_their_own_write_the_pieces_beside_the_owner(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    with (
        st.connect(tmp_path / "s", background=False) as db,
        ProcessPoolExecutor(2, mp_context=spawn) as pool,
    ):
        db.create_table("t", SCHEMA, primary_key="id")
        db["t"].upsert({"id": 5, "amount": 0}, missing="null")
        with st.connect(tmp_path / "s", read_only=True) as beside:
            stage = beside.stage("t", missing="null")
        written = pool.map(piece_writer.write, [pickle.dumps(stage)] * 3, [0, 10, 20])
        commit(db, (stage, [pickle.loads(each) for each in written]))
        through_all_levels(db, {n: 3 for low in (0, 10, 20) for n in range(low, low + 10)})


def test_a_piece_streams(tmp_path: Path) -> None:
    held: list[int] = []
    size = 200_000

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(60):
            held.append(pa.total_allocated_bytes() - before)
            low = number * size
            yield pa.record_batch({"id": np.arange(low, low + size), "amount": np.ones(size, int)})

    with open_store(tmp_path / "s", real_lance=True) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        stage = db.stage("t", missing="null")
        before = pa.total_allocated_bytes()
        assert stage.run_through(db._core.tables.writer, batches()).rows == 60 * size
    assert max(held) < 60 * size * 16 / 4


def test_a_renamed_table_is_still_the_one_that_rows_were_staged_for(db: Store) -> None:
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([1]))]
    db.rename_table("t", "u")
    db.create_table("t", SCHEMA, primary_key="id")
    commit(db, (stage, pieces))
    assert (amounts(db, "u"), amounts(db)) == ({1: 1}, {})
    db.drop_table("u")
    with pytest.raises(st.TableNotFoundError):
        commit(db, (stage, pieces))


def test_a_job_under_an_applied_token_gets_the_old_receipt_though_its_table_is_gone(
    db: Store,
) -> None:
    stage = db.stage("t")
    pieces = [piece(db, stage, batch([1, 2]))]
    first = commit(db, (stage, pieces), token=("app", 1))
    db.drop_table("t")
    again = commit(db, (stage, pieces), token=("app", 1))
    assert (again.seq, again.rows) == (first.seq, first.rows)
    assert db.tables() == ["p"]
