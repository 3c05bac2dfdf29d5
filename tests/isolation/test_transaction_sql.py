"""SQL of a transaction reads its snapshot and its own rows; serializable, it reads whole tables."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from tests.server.stores import DOORS, behind

TOTAL = "select sum(v)::int as v from t"


@pytest.fixture(params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with behind(request.param, tmp_path / "shop") as found:
        found.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        found.create_table("u", {"id": "int64", "v": "int64"}, primary_key="id")
        found.create_table("plain", {"id": "int64", "name": "string"})
        found["t"].upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])
        found["plain"].append([{"id": 1, "name": "Ada"}])
        yield found


def test_it_reads_the_snapshot_and_own_rows(db: st.Store) -> None:
    with db.transaction() as tx:
        db["t"].upsert({"id": 3, "v": 1000})  # after the snapshot
        assert tx.sql(TOTAL).fetchall() == [(30,)]
        tx["t"].update(1, v=11)
        tx["t"].delete(2)
        tx["t"].insert({"id": 4, "v": 100})
        assert tx.sql(TOTAL).fetchall() == [(111,)]
        assert tx.sql("select v from t where id = ?", [4]).fetchall() == [(100,)]
        tx["plain"].append([{"id": 4, "name": "Bo"}])
        tx.create_table("new", {"id": "int64"}, primary_key="id").insert({"id": 4})
        joined = "select name from plain join t using (id) join new using (id)"
        assert tx.sql(joined).fetchall() == [("Bo",)]
        assert tx.sql("select count(*) from t where v > 50").fetchall() == [(1,)]
        tx.rollback()
    assert db.sql(TOTAL).fetchall() == [(1030,)]


@pytest.mark.parametrize(
    ("statement", "conflicts"),
    [
        (TOTAL, True),
        ("select v from t where id = 1", True),
        ("select count(*) from u, t where t.id = u.id", True),
        ("with t as (select 1 as v) select v from t", False),
        ("select count(*) from u", False),
        ("show tables", False),
    ],
)
def test_under_serializable_it_reads_the_tables_that_it_names(
    db: st.Store, statement: str, conflicts: bool
) -> None:
    tx = db.transaction(isolation="serializable")
    tx.sql(statement)
    db["t"].upsert({"id": 2, "v": 21})
    tx["u"].insert({"id": 1, "v": 1})
    with pytest.raises(st.ConflictError) if conflicts else contextlib.nullcontext():
        tx.commit()
    assert db["u"].count() == (0 if conflicts else 1)


def test_under_snapshot_isolation_what_it_reads_does_not_conflict(db: st.Store) -> None:
    with db.transaction() as tx:
        tx.sql(TOTAL)
        db["t"].upsert({"id": 2, "v": 21})
        tx["u"].insert({"id": 1, "v": 1})
    assert db["u"].count() == 1


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("select * from nope", st.TableNotFoundError),
        ("delete from nope", st.TableNotFoundError),
        ("select 1; select 2", st.RequestError),
        ("selec", st.RequestError),
        (7, st.RequestError),
    ],
)
def test_a_wrong_statement_changes_nothing(db: st.Store, statement: object, error: type) -> None:
    with db.transaction() as tx:
        tx["t"].update(1, v=11)
        with pytest.raises(error):
            tx.sql(statement)
        assert tx.sql(TOTAL).fetchall() == [(31,)]
    assert db["t"].get(1)["v"] == 11
    with pytest.raises(st.ClosedError):
        tx.sql(TOTAL)


def test_it_sees_the_callers_frames_if_it_runs_here(db: st.Store) -> None:
    wanted = pa.table({"id": [2]})
    assert wanted.num_rows
    with db.transaction() as tx:
        statement = "select v from t join wanted using (id)"
        if getattr(db, "near", db) is not None:  # it runs in this process
            assert tx.sql(statement).fetchall() == [(20,)]
        else:
            with pytest.raises(st.RequestError, match="variable of this process"):
                tx.sql(statement)


def test_a_run_adds_up_what_it_reads_and_tries_again(db: st.Store) -> None:
    tried = itertools.count()

    def work(tx: st.Transaction) -> int:
        total = tx.sql(TOTAL).fetchall()[0][0]
        if not next(tried):
            db["t"].update(1, v=15)
        tx["t"].update(1, v=total)
        return total

    assert db.run(work) == 35
