"""What statements do otherwise than in DuckDB, each with what DuckDB does."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import siltstone as st

ROWS = "insert into t values (1, 10), (2, 20)"
TWICE = "(values (1, 5), (1, 6)) s(id, v)"


@pytest.fixture
def peer() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        for text in ("create table t (id bigint primary key, v bigint)", ROWS):
            found.execute(text)
        yield found


@pytest.fixture
def db(own: st.Store) -> st.Store:
    own.sql("create table t (id bigint primary key, v bigint)")
    own.sql(ROWS)
    return own


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"update t set v = s.v from {TWICE} where s.id = t.id", "with the key 1 twice"),
        (f"merge into t using {TWICE} using (id) when matched then delete", "with the key 1 twice"),
        ("insert into t values (3, 1), (3, 2) on conflict do update set v = 0", "is twice among"),
        ("update t set id = id + 7 where id = 1", "would change the key 1 to 8"),
        ("update t set (id, v) = (1, 5) where id = 1", "one column at a time"),
        ("create sequence x", "CREATE SEQUENCE is not offered"),
        ("create table x (a int default random())", "a default is a constant"),
    ],
)
def test_these_are_refused(
    db: st.Store, peer: duckdb.DuckDBPyConnection, text: str, words: str
) -> None:
    peer.execute(text)
    with pytest.raises(st.RequestError, match=words):
        db.sql(text)
    assert db.sql("from t order by id").fetchall() == [(1, 10), (2, 20)]


def test_a_clause_of_merge_that_would_never_act_is_refused(
    db: st.Store, peer: duckdb.DuckDBPyConnection
) -> None:
    text = (
        "merge into t using t as s using (id) when matched then do nothing"
        " when matched and t.id = 1 then delete"
    )
    try:
        peer.execute(text)
    except duckdb.ParserException:  # DuckDB 2 refuses it, too
        return
    finally:
        with pytest.raises(st.RequestError, match="behind WHEN MATCHED without a condition"):
            db.sql(text)
    assert peer.execute("select id from t").fetchall() == [(2,)]  # though "do nothing" came first


def test_or_replace_takes_the_last_of_new_rows_with_equal_keys(
    db: st.Store, peer: duckdb.DuckDBPyConnection
) -> None:
    text = "insert or replace into t values (6, 1), (6, 2)"
    db.sql(text)
    peer.execute(text)
    assert db.sql("select v from t where id = 6").fetchall() == [(2,)]
    assert peer.execute("select v from t where id = 6").fetchone() in {(1,), (2,)}


def test_a_value_that_no_row_gets_is_not_refused(
    db: st.Store, peer: duckdb.DuckDBPyConnection
) -> None:
    text = "merge into t using t as s using (id) when matched and t.id > 5 then update set v = 'x'"
    with pytest.raises(duckdb.ConversionException):
        peer.execute(text)
    assert db.sql(text).rows == 0


def test_a_constant_of_an_insert_is_cast_by_itself_as_there(
    db: st.Store, peer: duckdb.DuckDBPyConnection
) -> None:
    text = "insert into t values (7, '8'), (9, 1.5), (10, true), (11, null)"
    db.sql(text)
    peer.execute(text)
    query = "from t order by id"
    assert db.sql(query).fetchall() == peer.execute(query).fetchall()


def test_excluded_has_the_types_of_the_table(db: st.Store, peer: duckdb.DuckDBPyConnection) -> None:
    text = "insert into t select 1, '7' on conflict do update set v = length(excluded.v || 'x')"
    more = "insert into t select 1, 2.4 on conflict do update set v = excluded.v * 10"
    db.sql(text)
    peer.execute(text)
    query = "select v from t where id = 1"
    assert db.sql(query).fetchall() == peer.execute(query).fetchall() == [(2,)]
    db.sql(more)
    peer.execute(more)
    assert (db.sql(query).fetchall(), peer.execute(query).fetchall()) == ([(20,)], [(24,)])


def test_do_update_may_ask_other_tables(db: st.Store, peer: duckdb.DuckDBPyConnection) -> None:
    text = "insert into t values (1, 5) on conflict do update set v = (select max(v) from t)"
    with pytest.raises(duckdb.BinderException, match="cannot contain a subquery"):
        peer.execute(text)
    db.sql(text)
    assert db.sql("select v from t where id = 1").fetchall() == [(20,)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("delete from t returning count(*)", [(2,)]),
        ("update t set v = row_number() over () returning v", [(1,), (2,)]),
        ("update t set v = 9 where id = 1 returning (select sum(v) from t)", [(29,)]),
        ("delete from t where columns('id|v') > 1 returning id", [(2,)]),
    ],
)
def test_these_are_taken_where_duckdb_has_none(
    db: st.Store, peer: duckdb.DuckDBPyConnection, text: str, found: list[tuple[int]]
) -> None:
    with pytest.raises(duckdb.BinderException):
        peer.execute(text)
    assert sorted(db.sql(text).fetchall()) == found


def test_a_column_called_excluded_hides_the_new_row(
    db: st.Store, peer: duckdb.DuckDBPyConnection
) -> None:
    text = "insert into x values (1, 5, 6) on conflict do update set v = excluded.v + 1"
    for each in (
        "create table x (id bigint primary key, excluded bigint, v bigint)",
        "insert into x values (1, 7, 8)",
    ):
        db.sql(each)
        peer.execute(each)
    peer.execute(text)
    with pytest.raises(st.RequestError, match="Ambiguous reference"):
        db.sql(text)
    assert db.sql("from x").fetchall() == [(1, 7, 8)]


def test_returning_that_only_a_value_refutes_ends_the_transaction(
    db: st.Store, peer: duckdb.DuckDBPyConnection
) -> None:
    text = "update t set v = 9 returning ('x' || v)::int"
    with pytest.raises(duckdb.ConversionException):
        peer.execute(text)
    tx = db.transaction()
    tx.sql("insert into t values (3, 30)")
    with pytest.raises(st.RequestError, match="Could not convert"):
        tx.sql(text)
    with pytest.raises(st.SiltstoneError):
        tx.commit()
    assert db.sql("from t order by id").fetchall() == [(1, 10), (2, 20)]


def test_some_types_are_those_that_arrow_has(db: st.Store, peer: duckdb.DuckDBPyConnection) -> None:
    text = "create table x (a enum('b', 'c'), j json, h hugeint)"
    db.sql(text)
    peer.execute(text)
    kinds = {name: str(kind) for name, kind in zip("ajh", db["x"].schema.types, strict=True)}
    assert kinds == {"a": "string", "j": "string", "h": "decimal128(38, 0)"}
    db.sql("insert into x (a) values ('d')")
    with pytest.raises(duckdb.ConversionException):
        peer.execute("insert into x (a) values ('d')")


def test_a_name_with_the_catalog_is_taken_where_no_duckdb_reads(
    db: st.Store, peer: duckdb.DuckDBPyConnection
) -> None:
    for text in (
        "delete from memory.t where id = 1",
        "update memory.main.t set v = 0 where id = 2",
    ):
        peer.execute(text)
        assert db.sql(text).rows == 1
    peer.execute("update memory.t set v = v + 1")
    with pytest.raises(st.RequestError):
        db.sql("update memory.t set v = v + 1")
    assert db.sql("from t").fetchall() == [(2, 0)]
