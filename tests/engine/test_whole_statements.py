"""A statement of several steps that is refused leaves nothing in its transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.errors import ClosedError
from siltstone.local.store import LocalStore
from siltstone.local.transaction import LocalTransaction


class StopError(Exception):
    """What the statement of a test ends with."""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("k", {"id": "int64", "v": "string"}, "id").upsert([{"id": 1, "v": "a"}])
        db.create_table("p", {"id": "int64", "v": "string"}).append([{"id": 1, "v": "a"}])
        yield db


def stopped(tx: LocalTransaction, *steps: Callable[[LocalTransaction], object]) -> None:
    with pytest.raises(StopError):
        _run(tx, steps)


def _run(tx: LocalTransaction, steps: Sequence[Callable[[LocalTransaction], object]]) -> None:
    with tx.whole():
        for step in steps:
            step(tx)
        raise StopError


STEPS: dict[str, Callable[[LocalTransaction], object]] = {
    "append": lambda tx: tx["p"].append([{"id": 9, "v": "z"}]),
    "overwrite": lambda tx: tx["p"].overwrite([{"id": 9, "v": "z"}]),
    "delete": lambda tx: tx["p"].delete_where("id = 1"),
    "truncate": lambda tx: tx["p"].truncate(),
    "truncate of keys": lambda tx: tx["k"].truncate(),
    "add": lambda tx: tx["p"].add_column("n", "int64"),
    "add to keys": lambda tx: tx["k"].add_column("n", "int64"),
    "rename a column": lambda tx: tx["k"].rename_column("v", "w"),
    "drop a column": lambda tx: tx["p"].drop_column("v"),
    "create": lambda tx: tx.create_table("new", {"id": "int64"}, "id").upsert([{"id": 1}]),
    "drop": lambda tx: tx.drop_table("p"),
    "rename": lambda tx: tx.rename_table("k", "l"),
    "tag": lambda tx: tx.tag("now", tx.read_seq),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_changed", [False, True], ids=["untouched", "changed before"])
def test_every_step_is_taken_back(db: LocalStore, step: str, *, is_changed: bool) -> None:
    rows = [{"id": 1, "v": "a"}]
    with db.transaction() as tx:
        if is_changed:
            tx["k"].upsert([{"id": 2, "v": "b"}])
            tx["p"].append([{"id": 2, "v": "b"}])
            rows.append({"id": 2, "v": "b"})
        stopped(tx, STEPS[step])
        for name in ("k", "p"):
            assert sorted(tx[name].to_arrow().to_pylist(), key=lambda r: r["id"]) == rows
        tx["k"].upsert([{"id": 3, "v": "c"}])
        tx["p"].append([{"id": 3, "v": "c"}])
    rows.append({"id": 3, "v": "c"})
    assert (db.tables(), db.tags()) == (["k", "p"], {})
    for name in ("k", "p"):
        assert sorted(db[name].to_arrow().to_pylist(), key=lambda r: r["id"]) == rows
    assert db.verify().is_sound


def test_rows_of_a_keyed_table_without_rows_of_its_own_are_taken_back(db: LocalStore) -> None:
    with db.transaction() as tx:
        stopped(tx, lambda tx: tx["k"].upsert([{"id": 1, "v": "lost"}, {"id": 9, "v": "lost"}]))
        assert tx["k"].to_arrow().to_pylist() == [{"id": 1, "v": "a"}]
        tx["k"].upsert([{"id": 2, "v": "b"}])
    assert db["k"].count() == 2


def test_a_transaction_whose_rows_cannot_be_told_apart_is_rolled_back(db: LocalStore) -> None:
    before = db.seq
    tx = db.transaction()
    tx["k"].upsert([{"id": 2, "v": "b"}])
    stopped(tx, lambda tx: tx["k"].upsert([{"id": 3, "v": "c"}]))
    with pytest.raises(ClosedError):
        tx.commit()
    assert (db.seq, db["k"].count()) == (before, 1)


def test_a_statement_that_rolls_back_its_transaction_ends_it(db: LocalStore) -> None:
    tx = db.transaction()
    stopped(tx, lambda tx: tx["p"].truncate(), lambda tx: tx.rollback())
    assert not tx.is_open
    assert db["p"].count() == 1
