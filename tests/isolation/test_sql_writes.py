"""Statements of SQL are transactions: none loses an update, and serializable refuses a skew."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.choices import Isolation
from tests.server.stores import DOORS, behind


@pytest.fixture(params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with behind(request.param, tmp_path / "shop") as found:
        found.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        found.sql("insert into t values (1, 10), (2, 20)")
        yield found


def values(db: st.Store) -> list[tuple[int, int]]:
    return db.sql("from t order by id").fetchall()


@pytest.mark.parametrize(
    "text",
    [
        "update t set v = v + 1 where id = 1",
        "insert into t values (1, 1) on conflict (id) do update set v = t.v + excluded.v",
        "insert or replace into t select id, v + 1 from t where id = 1",
        "merge into t using (select 1 as id) s using (id) when matched then update set v = t.v + 1",
    ],
)
def test_no_update_is_lost(db: st.Store, text: str) -> None:
    with db.transaction() as late:
        late.sql(text)
        assert db.sql(text).rows == 1
        with pytest.raises(st.ConflictError):
            late.commit()
    assert values(db) == [(1, 11), (2, 20)]

    def four_times() -> None:
        for _ in range(4):
            db.sql(text)

    threads = [threading.Thread(target=four_times) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values(db) == [(1, 23), (2, 20)]


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize(
    "text",
    [
        "update t set v = -1 where id = ? and (select sum(v) from t) > 0",
        (
            "merge into t using (select ? as id, sum(v) as s from t) s on s.id = t.id and s.s > 0"
            " when matched then update set v = -1"
        ),
        "delete from t using t as u where t.id = ? and u.id <> t.id",
    ],
)
def test_a_write_skew_is_refused_under_serializable_alone(
    db: st.Store, text: str, isolation: Isolation
) -> None:
    one, two = db.transaction(isolation=isolation), db.transaction(isolation=isolation)
    assert (one.sql(text, [1]).rows, two.sql(text, [2]).rows) == (1, 1)
    one.commit()
    is_refused = isolation == "serializable"
    with pytest.raises(st.ConflictError) if is_refused else contextlib.nullcontext():
        two.commit()
    left = values(db)
    assert ((2, 20) in left) == is_refused


def test_a_read_skew_is_not_seen(db: st.Store) -> None:
    with db.transaction() as tx:
        tx.sql("insert into t select 3, v from t where id = 1")
        db.sql("update t set v = v + 5")
        tx.sql("insert into t select 4, v from t where id = 2")
    assert values(db) == [(1, 15), (2, 25), (3, 10), (4, 20)]


def test_a_statement_sees_the_rows_as_they_were_before_it(db: st.Store) -> None:
    db.sql("update t set v = (select max(v) from t) + id")
    assert values(db) == [(1, 21), (2, 22)]
    assert db.sql("insert into t select id + 2, v from t").rows == 2
    with db.transaction() as tx:
        for _ in range(2):
            tx.sql("insert into t select id + (select max(id) from t), v from t")
        assert tx.sql("select count(*) from t").fetchall() == [(16,)]


def test_an_insert_of_a_key_that_came_meanwhile_conflicts_in_a_transaction(db: st.Store) -> None:
    with db.transaction() as tx:
        tx.sql("insert into t values (3, 1)")
        db.sql("insert into t values (3, 2)")
        with pytest.raises(st.ConflictError):
            tx.commit()
    with pytest.raises(st.DuplicateKeyError):
        db.sql("insert into t values (3, 1)")
    assert values(db)[-1] == (3, 2)


def test_a_delete_by_filter_meets_no_row_that_came_meanwhile(db: st.Store) -> None:
    with db.transaction() as tx:
        assert tx.sql("delete from t where v > 5").rows == 2
        db.sql("insert into t values (3, 30)")
    assert values(db) == [(3, 30)]
