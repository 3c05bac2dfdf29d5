"""Few staged rows travel in the result of their task, and the commit writes them as an upsert."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.api.store import Store
from tests.maintenance.stores import open_store

SCHEMA = {"id": "int64", "v": "int64"}
BYTES = 1 << 20


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "s", real_lance=True) as store:
        store.create_table("t", SCHEMA, primary_key="id")
        store.create_table("p", SCHEMA)
        yield store


def batch(ids: list[int], v: int = 1) -> pa.RecordBatch:
    return pa.record_batch({"id": ids, "v": [v] * len(ids)})


def piece(stage: st.StageTask, rows: pa.RecordBatch, bytes_max: int = BYTES) -> st.Staged:
    task: st.StageTask = pickle.loads(pickle.dumps(stage))
    return pickle.loads(pickle.dumps(task.run([rows], inline_bytes_max=bytes_max)))


def attach(db: Store, *jobs: tuple[st.StageTask, list[st.Staged]], **options: bool) -> list[int]:
    with db.transaction() as tx:
        return [tx.attach(stage, pieces, **options) for stage, pieces in jobs]


def rows(db: Store, name: str = "t") -> dict[int, int]:
    return {row["id"]: row["v"] for row in db[name].to_arrow().to_pylist()}


def written(db: Store) -> list[Path]:
    return [*db.path.glob("tables/*/.attached/*/data/*"), *db.path.glob("tables/*/base/data/*")]


def test_few_rows_are_upserted_and_deleted_without_a_file(db: Store) -> None:
    stage = db.stage("t")
    pieces = [piece(stage, batch([1, 2])), piece(stage, batch([3]))]
    assert [each.rows for each in pieces] == [2, 1]
    assert attach(db, (stage, pieces)) == [3]
    gone = db.stage("t", "delete")
    assert attach(db, (gone, [piece(gone, batch([2, 9]))])) == [2]
    assert rows(db) == {1: 1, 3: 1}
    assert written(db) == []
    db.checkpoint()
    db.merge()
    assert rows(db) == {1: 1, 3: 1}
    assert db.verify(deep=True).is_sound


def test_more_rows_than_that_are_in_a_file(db: Store) -> None:
    stage = db.stage("t")
    assert piece(stage, batch([1, 2, 3]), bytes_max=40).inline is None
    assert written(db)


def test_equal_keys_are_refused_or_decided_by_a_column_as_in_files(db: Store) -> None:
    stage = db.stage("t")
    with pytest.raises(st.DuplicateKeyError, match="1"):
        attach(db, (stage, [piece(stage, batch([1])), piece(stage, batch([1]))]))
    ordered = db.stage("t", order_by="v")
    pieces = [piece(ordered, batch([1, 2], 5)), piece(ordered, batch([1, 2, 3], 4))]
    assert attach(db, (ordered, pieces)) == [3]
    assert rows(db) == {1: 5, 2: 5, 3: 4}


def test_an_insert_of_a_key_that_a_row_has_is_refused(db: Store) -> None:
    db["t"].upsert({"id": 7, "v": 0})
    stage = db.stage("t", "insert")
    with pytest.raises(st.DuplicateKeyError, match="7"):
        attach(db, (stage, [piece(stage, batch([6, 7]))]))
    assert rows(db) == {7: 0}


def test_rows_in_hand_and_rows_in_files_are_one_job(db: Store) -> None:
    stage = db.stage("t")
    pieces = [piece(stage, batch([1])), piece(stage, batch([2, 3]), bytes_max=0)]
    assert attach(db, (stage, pieces)) == [3]
    assert rows(db) == {1: 1, 2: 1, 3: 1}


def test_rows_in_hand_beside_files_become_a_file_where_they_are_neighbours(db: Store) -> None:
    stage = db.stage("t")
    sizes = (BYTES, BYTES, 0, BYTES, BYTES, BYTES)
    attach(db, (stage, [piece(stage, batch([n]), most) for n, most in enumerate(sizes)]))
    assert rows(db) == dict.fromkeys(range(6), 1)
    assert len(written(db)) == 3


def test_of_equal_rows_the_last_piece_counts_whether_in_hand_or_in_a_file(db: Store) -> None:
    db.create_table("o", {"id": "int64", "at": "int64", "v": "int64"}, primary_key="id")
    for last_of in range(4):
        stage = db.stage("o", order_by="at")
        pieces = [
            stage.run([pa.record_batch({"id": [1], "at": [0], "v": [n]})], inline_bytes_max=most)
            for n, most in enumerate((BYTES, 0, BYTES, BYTES)[: last_of + 1])
        ]
        attach(db, (stage, pieces))
        assert db["o"].get(1) == {"id": 1, "at": 0, "v": last_of}


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("bytes_max", [BYTES, 0])
def test_no_number_is_above_nan_and_null_is_below_all_in_hand_and_in_files(
    db: Store, kind: pa.DataType, bytes_max: int
) -> None:
    fields = pa.schema([("id", pa.int64()), ("at", kind), ("v", pa.int64())])
    db.create_table("o", fields, primary_key="id")
    ranks = [None, -np.inf, 0.0, np.inf, np.nan]
    pairs = list(itertools.permutations(range(len(ranks)), 2))
    ats = [[np.float16(ranks[n]) if ranks[n] is not None else None for n in p] for p in pairs]
    stage = db.stage("o", order_by="at")
    batches = [
        pa.record_batch([list(range(len(pairs))), pa.array(at, pa.float16()).cast(kind), v], fields)
        for at, v in zip(zip(*ats, strict=True), zip(*pairs, strict=True), strict=True)
    ]
    attach(db, (stage, [stage.run([batch], inline_bytes_max=bytes_max) for batch in batches]))
    assert {row["id"]: row["v"] for row in db["o"].to_arrow().to_pylist()} == {
        n: max(pair) for n, pair in enumerate(pairs)
    }


def test_a_later_job_of_a_commit_replaces_rows_of_an_earlier_one(db: Store) -> None:
    db["t"].upsert({"id": 9, "v": 0})
    first, gone, last = db.stage("t"), db.stage("t", "delete"), db.stage("t")
    jobs = [
        (first, [piece(first, batch([1, 2, 3], 1))]),
        (gone, [piece(gone, batch([2, 9]))]),
        (last, [piece(last, batch([3], 7))]),
    ]
    attach(db, *jobs)
    assert rows(db) == {1: 1, 3: 7}


def test_an_overwrite_replaces_all_rows(db: Store) -> None:
    db["t"].upsert({"id": 9, "v": 0})
    stage = db.stage("t")
    attach(db, (stage, [piece(stage, batch([1]))]), overwrite=True)
    assert rows(db) == {1: 1}


def test_a_column_that_was_added_since_is_null_where_that_is_said(db: Store) -> None:
    stage = db.stage("t", missing="null")
    pieces = [piece(stage, batch([1]))]
    db["t"].add_column("note", "string")
    attach(db, (stage, pieces))
    assert db["t"].get(1) == {"id": 1, "v": 1, "note": None}


def test_a_discarded_job_is_refused(db: Store) -> None:
    stage = db.stage("t")
    pieces = [piece(stage, batch([1]))]
    assert stage.discard(pieces)
    with pytest.raises(st.RequestError, match="discarded"):
        attach(db, (stage, pieces))


def test_bytes_that_are_no_rows_are_refused(db: Store) -> None:
    stage = db.stage("t")
    bad = st.Staged(stage.job, piece(stage, batch([1])).files, b"nothing")
    with pytest.raises(st.RequestError, match="cannot be read"):
        attach(db, (stage, [bad]))


def test_rows_of_a_table_without_a_key_are_in_files(db: Store) -> None:
    stage = db.stage("p")
    assert piece(stage, batch([1])).inline is None


def left(db: Store) -> list[str]:
    """The folders of jobs, with all that is in them."""
    folders = [path for path in db.path.glob("tables/*/.attached") if any(path.iterdir())]
    return sorted(str(each.relative_to(path)) for path in folders for each in path.rglob("*"))


@pytest.mark.parametrize("name", ["t", "first"])
def test_a_job_whose_rows_are_in_the_log_leaves_no_file(db: Store, name: str) -> None:
    db.create_table("first", SCHEMA, primary_key="id")
    db["t"].upsert(batch([7]))
    stage = db.stage(name)
    pieces = [piece(stage, batch([1, 2])), piece(stage, batch([]))]
    assert attach(db, (stage, pieces)) == [2]
    assert left(db)
    assert not stage.discard(pieces)  # attached
    assert left(db) == []
    assert not stage.discard(pieces)
    with pytest.raises(st.RequestError, match="discarded or vacuumed"):
        attach(db, (stage, pieces))
    assert rows(db, name).keys() >= {1, 2}


def test_a_discarded_job_without_a_file_leaves_none(db: Store) -> None:
    db["t"].upsert(batch([7]))
    stage = db.stage("t")
    pieces = [piece(stage, batch([1, 2]))]
    assert stage.discard(pieces)
    assert left(db) == []


def test_a_job_whose_few_rows_the_commit_wrote_to_files_keeps_them(db: Store) -> None:
    db["t"].upsert(batch([7]))
    stages = [db.stage("t"), db.stage("t")]
    jobs = [(stage, [piece(stage, batch([n]))]) for n, stage in enumerate(stages)]
    assert attach(db, *jobs) == [1, 1]  # two jobs of a table become runs
    for stage, pieces in jobs:
        assert not stage.discard(pieces)
    assert rows(db) == {0: 1, 1: 1, 7: 1}
    db.checkpoint()
    db.merge()
    assert rows(db) == {0: 1, 1: 1, 7: 1}
    assert db.verify(deep=True).is_sound


def test_a_store_has_no_more_files_after_many_small_jobs_than_after_one(db: Store) -> None:
    db["t"].upsert(batch([7]))
    seen = []
    for n in range(3):
        stage = db.stage("t")
        pieces = [piece(stage, batch([n]))]
        attach(db, (stage, pieces))
        stage.discard(pieces)
        seen.append(sum(1 for _ in db.path.rglob("*")))
    assert seen == seen[:1] * 3
