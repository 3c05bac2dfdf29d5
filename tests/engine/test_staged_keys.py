"""What tasks stage with sorted keys is committed as it is without, and leaves no file behind."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.engine.write.bulk import COVERED_ROWS_MIN
from siltstone.errors import DuplicateKeyError
from siltstone.storage.tables.keys.key_cover import _Cover
from siltstone.storage.tables.keys.staged_keys import ROWS_MIN
from tests.engine import piece_writer
from tests.maintenance.stores import Clock, open_store

SCHEMA = {"id": "string", "n": "int64"}
ROWS = COVERED_ROWS_MIN + 10


def rows(first: int, count: int) -> pa.Table:
    numbers = np.random.default_rng(first).permutation(np.arange(first, first + count))
    return pa.table({"id": [f"k{n}" for n in numbers], "n": numbers})


def keys_of(root: Path) -> set[Path]:
    """Return the staged keys that lie there."""
    return {*root.glob("tables/*/.attached/*/*.run")}


@pytest.fixture
def db(tmp_path: Path) -> st.Store:
    with st.connect(tmp_path / "s", background=False) as store:
        store.create_table("t", SCHEMA, primary_key="id")
        yield store


def staged_by_processes(stage: st.StageTask, tables: list[pa.Table]) -> list[st.Staged]:
    given = [pickle.dumps(stage)] * len(tables)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return [*map(pickle.loads, pool.map(piece_writer.write_all, given, tables))]


def read_none(_: object, parts: list[int]) -> tuple[()]:
    assert not parts
    return ()


@pytest.mark.parametrize("has_rows", [False, True])
def test_tasks_in_processes_of_their_own_sort_the_keys_and_key_runs_need_no_more(
    db: st.Store, has_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_rows:
        db["t"].upsert([{"id": "k5", "n": -1}, {"id": "other", "n": -2}])
    stage, half = db.stage("t"), ROWS // 2
    pieces = staged_by_processes(stage, [rows(0, half), rows(half, ROWS - half)])
    assert [len(piece.files.keys) for piece in pieces] == [1, 1]
    assert len(keys_of(db.path)) == 2
    with monkeypatch.context() as patch, db.transaction() as tx:
        patch.setattr(_Cover, "_entries", read_none)
        tx.attach(stage, pieces)
    assert not stage.discard(pieces)  # attached; but its keys go
    assert keys_of(db.path).isdisjoint(db.path / k.run.path for p in pieces for k in p.files.keys)
    for step in (lambda: None, db.checkpoint, db.merge):
        step()
        assert db["t"].count() == ROWS + has_rows
        assert [db["t"].get(f"k{n}")["n"] for n in (0, 5, half, ROWS - 1)] == [0, 5, half, ROWS - 1]
        assert db.verify(deep=True).is_sound


def test_equal_keys_of_two_tasks_are_refused_by_name(db: st.Store) -> None:
    stage = db.stage("t")
    pieces = [stage.run(rows(0, ROWS)), stage.run(rows(ROWS - 1, ROWS_MIN))]
    assert all(piece.files.keys for piece in pieces)
    with pytest.raises(DuplicateKeyError, match=f"k{ROWS - 1}"), db.transaction() as tx:
        tx.attach(stage, pieces)
    assert db["t"].count() == 0


def test_of_equal_keys_of_two_tasks_the_last_by_the_order_counts(db: st.Store) -> None:
    stage = db.stage("t", order_by="n")
    again = pa.table({"id": rows(0, ROWS_MIN)["id"], "n": pa.array(range(-ROWS_MIN, 0))})
    pieces = [stage.run(rows(0, ROWS)), stage.run(again)]
    with db.transaction() as tx:
        assert tx.attach(stage, pieces) == ROWS
    assert [db["t"].get(f"k{n}")["n"] for n in (0, 77)] == [0, 77]
    assert db.verify(deep=True).is_sound


def test_an_attach_that_is_tried_again_finds_the_keys_still_there(db: st.Store) -> None:
    stage = db.stage("t")
    pieces = [stage.run(rows(0, ROWS))]
    tx = db.transaction()
    tx.attach(stage, pieces)
    tx.rollback()
    (keys,) = pieces[0].files.keys
    assert (db.path / keys.run.path).exists()
    with db.transaction() as tx:
        assert tx.attach(stage, pieces) == ROWS


def test_a_discarded_job_takes_its_keys_with_it(db: st.Store) -> None:
    stage = db.stage("t")
    piece = stage.run(rows(0, ROWS_MIN))
    assert len(keys_of(db.path)) == 1
    assert stage.discard([piece])
    assert keys_of(db.path) == set()


def test_few_rows_and_those_without_a_key_stage_no_keys(db: st.Store) -> None:
    db.create_table("p", SCHEMA)
    assert db.stage("t").run(rows(0, ROWS_MIN - 1)).files.keys == ()
    assert db.stage("p").run(rows(0, ROWS)).files.keys == ()
    assert keys_of(db.path) == set()


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_vacuum_takes_the_keys_that_nobody_discarded(tmp_path: Path, is_committed: bool) -> None:
    clock = Clock()
    with open_store(tmp_path / "s", clock, real_lance=True, retention_s=0) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db["t"].upsert([{"id": "k1", "n": 1}])
        stage = db.stage("t")
        piece = stage.run(rows(0, ROWS))
        (keys,) = piece.files.keys
        if is_committed:
            with db.transaction() as tx:
                tx.attach(stage, [piece])
            db.checkpoint()
            db.merge()
        clock.move(days=30)
        db["t"].upsert([{"id": "k1", "n": 1}])
        db.checkpoint()
        db.vacuum(dry_run=False)
        assert not (db.path / keys.run.path).exists()
        assert db["t"].count() == (ROWS if is_committed else 1)
        assert db.verify(deep=True).is_sound
