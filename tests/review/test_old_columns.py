"""What a column held before it was dropped stays readable at the seqs that had it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from siltstone.api.store import Store
from tests.engine.seams import fake_env, open_store

SCHEMA = {"id": "int64", "v": "int64", "w": "string"}
ROW = {"id": 1, "v": 10, "w": "x"}


def reopened(db: Store, root: Path) -> Store:
    db.close()
    return open_store(root, fake_env(), memory_bytes_max=1 << 20)


def opened(root: Path) -> Store:
    db = open_store(root, fake_env(), memory_bytes_max=1 << 20)
    db.create_table("t", SCHEMA, primary_key="id")
    return db


def flush(db: Store, root: Path) -> Store:
    db.checkpoint()
    return reopened(db, root)


def merge(db: Store, root: Path) -> Store:
    db.checkpoint()
    db.merge()
    return reopened(db, root)


def check(db: Store, seq: int) -> None:
    with db.snapshot(seq=seq) as then:
        assert then["t"].get(1) == ROW
        assert then["t"].to_arrow().to_pylist() == [ROW]
    feed = db.changes(until=seq, tables=["t"])["t"].read_all().to_pylist()
    assert [(row["id"], row["v"], row["w"]) for row in feed] == [(1, 10, "x")]


@pytest.mark.parametrize("later", [flush, merge])
@pytest.mark.parametrize("is_flushed_before", [False, True])
def test_a_dropped_column_is_read_at_an_older_seq(
    tmp_path: Path, later: Callable[[Store, Path], Store], is_flushed_before: bool
) -> None:
    db = opened(tmp_path)
    seq = db["t"].upsert(ROW).seq
    if is_flushed_before:
        db.checkpoint()
    db["t"].drop_column("v")
    db["t"].upsert({"id": 2, "w": "y"})
    check(db, seq)
    db = later(db, tmp_path)
    check(db, seq)
    assert db["t"].get(1) == {"id": 1, "w": "x"}
    db.close()


def test_a_column_dropped_and_added_again_under_its_name_is_another(tmp_path: Path) -> None:
    db = opened(tmp_path)
    seq = db["t"].upsert(ROW).seq
    db["t"].drop_column("v")
    db["t"].add_column("v", "string")
    late = db["t"].upsert({"id": 1, "w": "x", "v": "new"}).seq
    for step in (
        lambda now: now,
        lambda now: flush(now, tmp_path),
        lambda now: merge(now, tmp_path),
    ):
        db = step(db)
        check(db, seq)
        assert db["t"].get(1) == {"id": 1, "w": "x", "v": "new"}
        with db.snapshot(seq=late) as then:
            assert then["t"].get(1) == {"id": 1, "w": "x", "v": "new"}
    db.close()


def test_a_row_flushed_before_a_column_came_has_it_as_null(tmp_path: Path) -> None:
    db = opened(tmp_path)
    db["t"].upsert(ROW)
    db = flush(db, tmp_path)
    db["t"].add_column("late", "int64")
    db = reopened(db, tmp_path)
    assert db["t"].get(1) == {**ROW, "late": None}
    db.checkpoint()
    assert db["t"].get(1) == {**ROW, "late": None}
    db.close()
