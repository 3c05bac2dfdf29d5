"""A transaction that has ended keeps no record from vacuum, however long its caller keeps it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.local.store import LocalStore
from tests.maintenance.stores import Clock, open_store


def written(db: LocalStore) -> object:
    with db.transaction() as tx:
        tx["t"].upsert({"id": 1, "v": 1})
        tx["t"].update(2, v=1)
    return tx


def read(db: LocalStore) -> object:
    with db.transaction(isolation="serializable") as tx:
        table = tx["t"]
        table.get(1)
        table.to_arrow()
    return tx, table


def rolled_back(db: LocalStore) -> object:
    tx = db.transaction()
    tx["t"].get(1)
    tx.rollback()
    return tx


def refused(db: LocalStore) -> object:
    tx = db.transaction()
    tx["t"].upsert({"id": 1, "v": 1})
    db["t"].upsert({"id": 1, "v": 2})
    with pytest.raises(st.ConflictError):
        tx.commit()
    return tx


def plain(db: LocalStore) -> object:
    with db.transaction() as tx:
        tx["p"].append([{"n": 1}])
    return tx


def attached(db: LocalStore) -> object:
    stage = db.stage("t")
    piece = stage.run_through(db._core.tables.writer, pa.table({"id": range(9), "v": [1] * 9}))
    with db.transaction() as tx:
        tx.attach(stage, [piece])
    return tx, stage


@pytest.mark.parametrize("begin", [written, read, rolled_back, refused, plain, attached])
def test_a_transaction_that_ended_holds_no_lease(
    tmp_path: Path, begin: Callable[[LocalStore], object]
) -> None:
    clock = Clock()
    with open_store(tmp_path / "db", clock, load_rows_min=2, retention_s=0) as db:
        db.create_table("t", {"id": "int64", "v": "int64"}, "id")
        db.create_table("p", {"n": "int64"})
        db["t"].upsert([{"id": n, "v": 0} for n in range(20)])
        db.checkpoint()
        db.merge()
        kept = begin(db)
        for turn in range(2):
            clock.move(seconds=1)
            db["t"].upsert({"id": 3, "v": turn})
            db.checkpoint()
            db.merge()
        assert db.vacuum(dry_run=False, grace_s=0).spared == ()
        assert kept is not None


def test_a_transaction_that_ended_says_so(tmp_path: Path) -> None:
    with open_store(tmp_path / "db") as db:
        db.create_table("t", {"id": "int64", "v": "int64"}, "id")
        with db.transaction() as tx:
            table = tx["t"]
            table.upsert({"id": 1, "v": 0})
        for ask in (lambda: tx["t"], lambda: table.get(1), table.to_arrow, tx.commit):
            with pytest.raises(st.ClosedError):
                ask()
        assert tx.receipt is not None
        assert tx.seq == tx.receipt.seq
