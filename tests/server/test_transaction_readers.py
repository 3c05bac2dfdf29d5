"""The rows of a query in a transaction come as they are read, at each door, and end with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.errors import ClosedError
from tests.server.stores import DOORS, behind

MANY = 100_000


@pytest.fixture(params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with behind(request.param, tmp_path / "s") as db:
        db.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        db["t"].insert({"id": 1, "v": 1})
        yield db


def test_it_sees_what_the_transaction_wrote_and_no_one_elses_commits(db: st.Store) -> None:
    with db.transaction() as tx:
        db["t"].insert({"id": 2, "v": 2})
        tx["t"].insert({"id": 3, "v": 3})
        found = tx.sql_reader("select id from t where id > ? order by id", [0])
        assert found.read_all().to_pydict() == {"id": [1, 3]}


def test_writes_go_on_while_its_rows_are_read_and_do_not_change_them(db: st.Store) -> None:
    rows = [{"id": n, "v": n} for n in range(2, MANY)]
    with db.transaction() as tx:
        tx["t"].insert(rows)
        read = 0
        for batch in tx.sql_reader("select id from t"):
            read += batch.num_rows
            tx.sql("update t set v = ? where id = 1", [read])
            tx.sql("insert into t values (?, 0)", [MANY + read])
        assert read == MANY - 1
        assert tx.sql("select v from t where id = 1").fetchone() == (read,)
    assert db["t"].get(1) == {"id": 1, "v": read}


def test_it_only_reads(db: st.Store) -> None:
    with db.transaction() as tx, pytest.raises(st.ReadOnlyError):
        tx.sql_reader("delete from t")


def test_its_rows_end_with_the_transaction(db: st.Store) -> None:
    tx = db.transaction()
    reader = tx.sql_reader("select range as n from range(100_000_000)")
    assert next(iter(reader)).num_rows
    tx.rollback()
    with pytest.raises(ClosedError):
        for _ in reader:
            pass
    with pytest.raises(ClosedError):
        tx.sql_reader("select 1")
