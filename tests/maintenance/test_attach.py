"""A bulk commit into a table that has rows becomes a run of its seq: whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.maintenance.flush import bulk_load as loads
from siltstone.maintenance.flush.bulk_load import load
from tests.maintenance.stores import open_store

SCHEMA = {"id": "int64", "name": "string", "amount": "int64"}


def rows(low: int, high: int, amount: int) -> pa.Table:
    ids = np.arange(low, high)[::-1].copy()
    return pa.table({"amount": np.full(len(ids), amount), "id": ids})


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", segment_bytes=65_536, background=False) as store:
        store.create_table("t", SCHEMA, primary_key="id")
        store["t"].upsert(
            [{"id": 5, "name": "five", "amount": 0}, {"id": 900, "amount": 0}], missing="null"
        )
        yield store


def attach(db: st.Store, given: pa.Table, *, may_repeat: bool = True) -> st.Receipt:
    """Attach however few the rows are."""
    table = db["t"]
    definition, table_schema = table._table_schema()
    receipt = load(db._core, definition, table_schema, given, may_repeat=may_repeat, bytes_min=1)
    assert isinstance(receipt, st.Receipt)
    return receipt


def content(source: object) -> dict[int, int]:
    table = source["t"].to_arrow()  # type: ignore[index]
    assert len(set(table["id"].to_pylist())) == table.num_rows
    return dict(zip(table["id"].to_pylist(), table["amount"].to_pylist(), strict=True))


def expected() -> dict[int, int]:
    return {**dict.fromkeys(range(100), 1), 900: 0, 5: 7}


def test_attached_rows_are_read_like_any_others_in_every_level(db: st.Store) -> None:
    receipt = attach(db, rows(0, 100, 1))
    db["t"].upsert({"id": 5, "amount": 7}, missing="null")
    db["t"].delete(6)
    wanted = {k: v for k, v in expected().items() if k != 6}
    for step in (lambda: None, db.checkpoint, db.merge):
        step()
        assert content(db) == wanted
        assert db["t"].get(5) == {"id": 5, "name": None, "amount": 7}
        assert db["t"].get(6) is None
        assert db["t"].get(7) == {"id": 7, "name": None, "amount": 1}
        with db.snapshot(seq=receipt.seq) as then:
            assert content(then) == {**dict.fromkeys(range(100), 1), 900: 0}
        with db.snapshot(seq=receipt.seq - 1) as before:
            assert content(before) == {5: 0, 900: 0}


def test_a_reopened_store_and_a_reader_beside_it_see_attached_rows(
    db: st.Store, tmp_path: Path
) -> None:
    attach(db, rows(0, 100, 1))
    db["t"].upsert({"id": 5, "amount": 7}, missing="null")
    with st.connect(tmp_path / "s", read_only=True) as beside:
        assert content(beside) == expected()
    db.close()
    with st.connect(tmp_path / "s", segment_bytes=65_536, background=False) as again:
        assert content(again) == expected()
        again.checkpoint()
        assert content(again) == expected()


def test_of_equal_keys_in_one_bulk_upsert_the_last_counts(db: st.Store) -> None:
    attach(db, pa.concat_tables([rows(0, 100, 3), rows(0, 100, 1)]))
    assert content(db) == {**dict.fromkeys(range(100), 1), 900: 0}


def test_a_bulk_insert_of_a_living_key_writes_nothing(db: st.Store) -> None:
    seq = db.seq
    with pytest.raises(st.DuplicateKeyError, match="900"):
        attach(db, rows(850, 950, 1), may_repeat=False)
    with pytest.raises(st.DuplicateKeyError, match="t"):
        attach(db, pa.concat_tables([rows(10, 20, 1), rows(19, 25, 1)]), may_repeat=False)
    assert (db.seq, content(db)) == (seq, {5: 0, 900: 0})
    attach(db, rows(10, 20, 1), may_repeat=False)
    assert content(db) == {5: 0, 900: 0, **dict.fromkeys(range(10, 20), 1)}


def test_a_bulk_commit_conflicts_with_an_open_writer_of_one_of_its_keys(db: st.Store) -> None:
    tx = db.transaction()
    tx["t"].update(5, amount=1)
    attach(db, rows(0, 100, 1))
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert content(db)[5] == 1


def test_the_change_feed_shows_a_bulk_commit_at_its_seq(db: st.Store) -> None:
    receipt = attach(db, rows(0, 100, 1))
    for _ in range(2):
        feed = db.changes(since=receipt.seq - 1)["t"].read_all()
        assert feed.num_rows == 100
        assert set(feed["_seq"].to_pylist()) == {receipt.seq}
        db.checkpoint()


def test_the_threshold_is_what_the_docs_say() -> None:
    assert (loads.LOAD_BYTES_MIN, loads.ATTACH_BYTES_MIN) == (32 << 20, 64 << 20)


def test_bulk_commits_alone_are_flushed_in_time_also_after_a_reopen(tmp_path: Path) -> None:
    eight = {"memtable_bytes_max": 8 << 20}
    with open_store(tmp_path / "fake", **eight) as first:
        first.create_table("t", SCHEMA, primary_key="id")
        first["t"].upsert({"id": 900, "amount": 0}, missing="null")
        for number in range(13):
            attach(first, rows(number, number + 1, 1))
        flushed = first._core.state().view.record.flushed_seq
        assert flushed == 2 + 8
    with open_store(tmp_path / "fake", **eight) as again:
        for number in range(4):
            attach(again, rows(number, number + 1, 3))
        assert again._core.state().view.record.flushed_seq > flushed
        expected = {**dict.fromkeys(range(4), 3), **dict.fromkeys(range(4, 13), 1), 900: 0}
        assert content(again) == expected
