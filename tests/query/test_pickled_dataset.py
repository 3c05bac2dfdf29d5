"""A dataset that travels to another process reads the same rows there, or says why not."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st
from tests.server.stores import joined_to, opened

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with opened(tmp_path / "shop") as db:
        db.create_table("t", data=ROWS, primary_key="id")
        db.create_table("p", data=ROWS)
        yield db


def counted(dataset: object, wanted: object = None) -> int:
    """Count in a worker; polars is what it imports beside the store."""
    return (
        pl.scan_pyarrow_dataset(dataset.filter(wanted) if wanted is not None else dataset)
        .collect()
        .height
    )


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_spawned_worker_reads_the_rows_of_the_seq(db: st.Store, *, is_flushed: bool) -> None:
    if is_flushed:
        db.checkpoint()
        db.merge()
    keyed, plain = db["t"].dataset(), db["p"].dataset()
    db["t"].delete([1, 2])
    db["p"].truncate()
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        given = [(keyed, None), (plain, None), (keyed, pc.field("id") > 1), (plain, "id = 1")]
        assert workers.starmap(counted, given) == [3, 3, 2, 1]


def test_a_dataset_keeps_its_filter_and_its_rows_when_it_comes_back(db: st.Store) -> None:
    wanted = db["t"].dataset().filter(pc.field("id") > 1)
    for _ in range(3):
        again = pickle.loads(pickle.dumps(wanted))
        db["t"].upsert({"id": 9}, "null")
        assert again.to_table().sort_by("id") == wanted.to_table().sort_by("id")
        assert again.count_rows() == 2
        wanted = again
    assert len(pickle.dumps(wanted)) < 2_000
    del wanted, again
    gc.collect()


def test_a_table_of_a_snapshot_travels_with_its_past(db: st.Store) -> None:
    seq = db.seq
    db.rename_table("t", "u")
    db["u"].truncate()
    with db.snapshot(seq=seq) as past:
        again = pickle.loads(pickle.dumps(past["t"]))
    assert again.count() == 3
    assert again.get(2) == {"id": 2, "v": "b"}


def test_only_durable_rows_travel(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False, sync_interval_ms=600_000) as db:
        db.create_table("t", data=ROWS, primary_key="id")
        with db.transaction(durability="async") as tx:
            tx["t"].upsert({"id": 4}, "null")
        found = pickle.dumps(db["t"].dataset())
        assert db.durable_seq == db.seq
        assert pickle.loads(found).count_rows() == 4


def test_a_dataset_of_a_joined_store_travels_where_the_files_are(db: st.Store) -> None:
    with joined_to(db) as joined:
        again = pickle.loads(pickle.dumps(joined["t"].dataset()))
    assert again.to_table().sort_by("id").to_pydict() == ROWS.to_pydict()
    with st.connect(db.serve(port=0).url) as remote:
        assert pickle.loads(pickle.dumps(remote["p"].dataset())).count_rows() == 3


def test_a_dataset_of_a_reader_travels_too(db: st.Store) -> None:
    with st.connect(db.path, read_only=True) as reader:
        assert pickle.loads(pickle.dumps(reader["t"].dataset())).count_rows() == 3


def test_a_past_that_is_gone_is_refused_as_expired(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False, retention="0s") as db:
        db.create_table("t", data=ROWS, primary_key="id")
        found = pickle.dumps(db["t"].dataset())
        db["t"].upsert({"id": 4}, "null")
        for _ in range(3):
            db.checkpoint()
            db.merge()
            db["t"].upsert({"id": 5}, "null")
            db.vacuum(dry_run=False, grace_s=0.0)
        gc.collect()
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0.0)
        with pytest.raises(st.SnapshotExpiredError, match="cannot read at"):
            pickle.loads(found)


def test_another_store_at_the_path_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as db:
        db.create_table("t", data=ROWS, primary_key="id")
        found = pickle.dumps(db["t"].dataset())
    shutil.rmtree(tmp_path / "s")
    with opened(tmp_path / "s") as db, pytest.raises(st.RequestError, match="was pickled of"):
        pickle.loads(found)


def test_a_closed_snapshot_does_not_travel(db: st.Store) -> None:
    past = db.snapshot()
    table = past["t"]
    past.close()
    with pytest.raises(st.ClosedError):
        pickle.dumps(table)
