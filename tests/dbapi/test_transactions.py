"""Transactions begin, end and fail as those of sqlite3, with a conflict where others wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

import siltstone as st
from siltstone import dbapi

LEGACY = dbapi.LEGACY_TRANSACTION_CONTROL


def _n(db: st.Store, key: int = 1) -> object:
    row = db["t"].get(key)
    return None if row is None else row["n"]


# when they begin


def test_by_default_the_first_statement_that_writes_begins_one(at_door: st.Store) -> None:
    con = dbapi.connect(at_door)
    cur = con.cursor()
    assert con.autocommit == LEGACY
    cur.execute("select n from t").fetchall()
    assert not con.in_transaction
    at_door["t"].update(1, n=11)
    assert cur.execute("select n from t").fetchall() == [(11,)]
    cur.execute("insert into t values (2, 20)")
    assert con.in_transaction
    at_door["t"].update(1, n=12)
    assert cur.execute("select n from t order by id").fetchall() == [(11,), (20,)]
    assert _n(at_door, 2) is None
    con.commit()
    assert not con.in_transaction
    assert _n(at_door, 2) == 20
    assert cur.execute("select n from t where id = 1").fetchall() == [(12,)]
    con.close()


def test_a_definition_writes_too(con: dbapi.Connection, db: st.Store) -> None:
    cur = con.cursor()
    cur.execute("create table u (id bigint primary key)")
    cur.execute("insert into u values (1)")
    assert con.in_transaction
    assert "u" not in db
    con.rollback()
    assert "u" not in db


def test_without_autocommit_the_first_statement_begins_one(at_door: st.Store) -> None:
    con = dbapi.connect(at_door, autocommit=False)
    cur = con.cursor()
    assert not con.in_transaction
    assert cur.execute("select n from t").fetchall() == [(10,)]
    assert con.in_transaction
    at_door["t"].update(1, n=11)
    assert cur.execute("select n from t").fetchall() == [(10,)]
    con.rollback()
    assert cur.execute("select n from t").fetchall() == [(11,)]
    con.close()


def test_with_autocommit_each_statement_is_its_own_one(at_door: st.Store) -> None:
    con = dbapi.connect(at_door, autocommit=True)
    cur = con.cursor()
    assert cur.execute("update t set n = 11").rowcount == 1
    assert not con.in_transaction
    assert _n(at_door) == 11
    cur.execute("begin")
    cur.execute("update t set n = 12")
    assert con.in_transaction
    assert _n(at_door) == 11
    con.commit()
    assert _n(at_door) == 12
    con.close()


def _count(db: st.Store, autocommit: int) -> None:
    """Add one to the counter, as a program does that computes: while another one does, too."""
    con = dbapi.connect(db, autocommit=autocommit)
    cur = con.cursor()
    (n,) = cur.execute("select n from t where id = 1").fetchall()[0]
    db.sql("update t set n = n + 1 where id = 1")  # the other one
    cur.execute("update t set n = ? where id = 1", [n + 1])
    try:
        con.commit()
    finally:
        con.close()


def test_a_counter_that_is_read_outside_of_the_transaction_loses_one(at_door: st.Store) -> None:
    _count(at_door, LEGACY)
    assert _n(at_door) == 11  # and two were added


def test_a_counter_that_is_read_within_the_transaction_conflicts(at_door: st.Store) -> None:
    with pytest.raises(dbapi.OperationalError, match="run the transaction again") as caught:
        _count(at_door, autocommit=False)
    assert isinstance(caught.value.__cause__, st.ConflictError)
    assert _n(at_door) == 11


def test_a_serializable_connection_conflicts_where_only_reads_meet_writes(db: st.Store) -> None:
    db["t"].insert({"id": 2, "n": 20})
    con = dbapi.connect(db, autocommit=False, isolation="serializable")
    assert con.isolation == "serializable"
    cur = con.cursor()
    cur.execute("select sum(n) from t").fetchall()
    cur.execute("insert into t values (3, 0)")
    db["t"].update(1, n=11)
    with pytest.raises(dbapi.OperationalError) as caught:
        con.commit()
    assert isinstance(caught.value.__cause__, st.ConflictError)
    con.close()


# how they end


def test_after_a_conflict_no_transaction_is_open_and_the_next_statement_begins_one(
    con: dbapi.Connection, db: st.Store
) -> None:
    cur = con.cursor()
    for n in (11, 12):
        cur.execute("update t set n = ? where id = 1", [n])
        if n == 11:
            db["t"].update(1, n=99)
            with pytest.raises(dbapi.OperationalError):
                con.commit()
            assert not con.in_transaction
    con.commit()
    assert _n(db) == 12


def test_a_statement_that_is_refused_changes_nothing_and_the_transaction_goes_on(
    con: dbapi.Connection, db: st.Store
) -> None:
    cur = con.cursor()
    cur.execute("insert into t values (2, 20)")
    with pytest.raises(dbapi.IntegrityError):
        cur.execute("insert into t values (3, 30), (1, 0)")
    assert con.in_transaction
    con.commit()
    assert (_n(db, 2), _n(db, 3)) == (20, None)


def test_a_first_statement_that_is_refused_leaves_no_transaction(db: st.Store) -> None:
    for autocommit in (LEGACY, False):
        con = dbapi.connect(db, autocommit=autocommit)
        with pytest.raises(dbapi.IntegrityError):
            con.cursor().execute("insert into t values (1, 0)")
        assert not con.in_transaction
        con.close()


def test_a_transaction_that_an_error_ended_takes_no_more_until_it_is_rolled_back(
    con: dbapi.Connection, db: st.Store
) -> None:
    cur = con.cursor()
    cur.execute("insert into t values (2, 20)")
    with pytest.raises(dbapi.DatabaseError):
        cur.execute("update t set n = 1 returning cast(id::varchar || 'x' as bigint)")
    for statement in ("insert into t values (3, 30)", "select 1"):
        with pytest.raises(dbapi.OperationalError, match="was rolled back by an error; call roll"):
            cur.execute(statement)
    with pytest.raises(dbapi.OperationalError, match="begin a new one"):
        con.commit()
    cur.execute("insert into t values (4, 40)")
    con.commit()
    assert db.sql("select id from t order by id").fetchall() == [(1,), (4,)]


def test_the_block_of_a_connection_commits_or_rolls_back_and_leaves_it_open(
    con: dbapi.Connection, db: st.Store
) -> None:
    cur = con.cursor()
    with con as entered:
        assert entered is con
        cur.execute("update t set n = 11")
    assert _n(db) == 11
    with pytest.raises(dbapi.IntegrityError), con:
        cur.execute("insert into t values (2, 20), (1, 10)")
    assert not con.in_transaction
    assert _n(db, 2) is None
    with con:
        cur.execute("update t set n = 13")
        con.close()
    assert _n(db) == 11


def test_commit_and_rollback_without_a_transaction_do_nothing(
    con: dbapi.Connection, db: st.Store
) -> None:
    seq = db.seq
    con.commit()
    con.rollback()
    assert db.seq == seq


def test_close_rolls_back(db: st.Store) -> None:
    con = dbapi.connect(db)
    con.cursor().execute("update t set n = 11")
    con.close()
    assert _n(db) == 10


def test_setting_autocommit_commits_and_what_begins_changes(
    con: dbapi.Connection, db: st.Store
) -> None:
    cur = con.cursor()
    cur.execute("update t set n = 11")
    con.autocommit = True
    assert (con.autocommit, con.in_transaction, _n(db)) == (True, False, 11)
    con.autocommit = False
    cur.execute("select 1").fetchall()
    assert con.in_transaction
    con.autocommit = LEGACY
    assert con.in_transaction
    with pytest.raises(dbapi.ProgrammingError, match="autocommit must be"):
        con.autocommit = "yes"  # type: ignore[assignment]


# statements


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("BEGIN", "COMMIT"),
        ("begin transaction;", "commit work ;"),
        ("/* now */ begin deferred\ttransaction -- all\n", "end"),
        ("start transaction", "END TRANSACTION"),
    ],
)
def test_begin_and_commit_are_statements(
    con: dbapi.Connection, db: st.Store, begin: str, end: str
) -> None:
    cur = con.cursor()
    cur.execute(begin)
    assert con.in_transaction
    db["t"].update(1, n=11)
    assert cur.execute("select n from t").fetchall() == [(10,)]
    cur.execute("insert into t values (2, 20)")
    assert cur.execute(end).description is None
    assert not con.in_transaction
    assert _n(db, 2) == 20


@pytest.mark.parametrize("end", ["rollback", "ROLLBACK TRANSACTION", "abort;"])
def test_rollback_is_a_statement(con: dbapi.Connection, db: st.Store, end: str) -> None:
    cur = con.cursor()
    cur.execute("begin")
    cur.execute("update t set n = 11")
    cur.execute(end)
    assert not con.in_transaction
    assert _n(db) == 10


def test_a_statement_that_has_no_transaction_to_begin_or_end_is_refused(
    con: dbapi.Connection,
) -> None:
    cur = con.cursor()
    for statement in ("commit", "rollback"):
        with pytest.raises(dbapi.ProgrammingError, match="no transaction is open"):
            cur.execute(statement)
    cur.execute("begin")
    with pytest.raises(dbapi.ProgrammingError, match="a transaction is open already"):
        cur.execute("begin")


@pytest.mark.parametrize(
    "statement",
    [
        *("savepoint a", "release a", "rollback to a", "begin immediate", "begin exclusive"),
        *("commit and chain", "begin; select 1", "begin read only"),
    ],
)
def test_other_statements_about_transactions_are_refused_by_name(
    con: dbapi.Connection, statement: str
) -> None:
    with pytest.raises(dbapi.NotSupportedError, match="BEGIN, COMMIT and ROLLBACK are"):
        con.cursor().execute(statement)
    assert not con.in_transaction


def test_an_index_is_made_outside_of_transactions(con: dbapi.Connection, db: st.Store) -> None:
    cur = con.cursor()
    cur.execute("create index by_n on t (n)")
    assert not con.in_transaction
    assert [index.name for index in db["t"].indexes()] == ["by_n"]
    cur.execute("update t set n = 11")
    with pytest.raises(dbapi.ProgrammingError, match="an index is no part of a transaction"):
        cur.execute("drop index by_n")
    con.rollback()
    cur.execute("drop index by_n")
    assert db["t"].indexes() == []


# stores that are only read


@pytest.mark.parametrize("autocommit", [LEGACY, False, True])
def test_a_read_only_store_is_read_and_refuses_writes(tmp_path: Path, autocommit: int) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64", "n": "int64"}, primary_key="id")
        db["t"].insert({"id": 1, "n": 10})
        con = dbapi.connect(tmp_path / "s", read_only=True, autocommit=autocommit)
        cur = con.cursor()
        assert cur.execute("select n from t").fetchall() == [(10,)]
        for call in (
            lambda: cur.execute("update t set n = 1"),
            lambda: cur.executemany("delete from t where id = ?", [(1,)]),
        ):
            with pytest.raises(dbapi.ProgrammingError, match="read") as caught:
                call()
            assert isinstance(caught.value.__cause__, st.ReadOnlyError)
        con.commit()
        con.close()


def test_without_autocommit_a_read_only_store_is_read_at_one_snapshot(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id")
        con = dbapi.connect(tmp_path / "s", read_only=True, autocommit=False)
        cur = con.cursor()
        count = "select count(*) from t"
        assert cur.execute(count).fetchall() == [(0,)]
        db["t"].insert({"id": 1})
        assert cur.execute(count).fetchall() == [(0,)]
        con.rollback()
        assert cur.execute(count).fetchall() == [(1,)]
        con.close()
