"""Defaults in SQL: columns that are left out, and the word DEFAULT, as DuckDB takes them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import siltstone as st

TABLE = (
    "create table t (id bigint primary key, n int default 3 not null, s varchar default 'it''s',"
    " d date default date '2026-01-02', x double default 0.5, b blob default '\\xAA'::blob,"
    " m decimal(10, 2) default 1.2, z timestamptz default '2026-01-01 00:00:00+00', y bool)"
)
LIFE = (
    "insert into t (id) values (1), (2)",
    "insert into t (id, n, s, b) values (3, default, default, default), (4, 40, null, null)",
    "insert into t by name select 5 as id, 'five' as s",
    "insert into t (id, x) select id + 10, 7 from t",
    "update t set n = default, x = default where id = 4",
    "update t set s = default, m = default, z = default where n = 3 and id > 11",
    "insert into t (id, s) values (1, 'again'), (20, 'new') on conflict do update set n = default",
    "insert into t (id) values (1), (21) on conflict do nothing",
    "insert or replace into t (id, n) values (2, 8), (22, 9)",
    """merge into t using (select 23 as id union select 3) as u using (id)
    when matched then update set d = default, s = 'merged'
    when not matched then insert (id, s) values (u.id, default)""",
    "alter table t alter column n set default 4",
    "insert into t (id) values (30)",
    "alter table t alter s drop default",
    "insert into t (id) values (31)",
    "alter table t add column c int default 5",
    "insert into t (id, c) values (32, null), (33, default)",
    "alter table t alter column n drop not null",
    "insert into t (id, n) values (34, null)",
    "update t set n = 1 where n is null",
)  # fmt: skip


@pytest.fixture
def peer() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        yield made


def test_a_life_with_defaults_is_that_of_duckdb(
    db: st.Store, peer: duckdb.DuckDBPyConnection
) -> None:
    (zone,) = db.sql("select current_setting('TimeZone')").fetchall()[0]
    peer.execute(f"SET TimeZone = '{zone}'")
    for number, text in enumerate((TABLE, *LIFE)):
        peer.execute(text)
        db.sql(text)
        query = "from t order by id"
        theirs = peer.sql(query).to_arrow_table().to_pylist()
        assert db.sql(query).to_arrow().to_pylist() == theirs, text
        if number % 6 == 5:
            db.checkpoint()
            db.merge()


def test_default_values_need_no_name(db: st.Store) -> None:
    db.sql("create table p (a int default 2 + 3, b varchar default 'x', c int default null)")
    assert db.sql("insert into p default values returning *").fetchall() == [(5, "x", None)]
    db.sql("insert into p (b) values (default)")
    assert db.sql("from p").fetchall() == [(5, "x", None)] * 2


def test_an_added_column_of_not_null_has_its_default_everywhere(db: st.Store) -> None:
    with db.transaction() as tx:
        tx.sql("alter table orders add column paid bool default false not null")
        tx.sql("insert into orders (id, who) values (9, 'nine')")
        assert tx.sql("select count(*) from orders where not paid").fetchall() == [(4,)]
    assert db.sql("select count(*) from orders where not paid").fetchall() == [(4,)]
    with pytest.raises(st.SchemaMismatchError, match="'paid' takes no null"):
        db.sql("insert into orders (id, paid) select 10, null")
    with pytest.raises(st.SchemaMismatchError, match="may not be null"):
        db.sql("insert into orders (id, paid) values (10, null)")


def test_not_null_is_said_and_taken_back(db: st.Store) -> None:
    db.sql("update orders set total = 0 where total is null")
    db.sql("alter table orders alter column total set not null")
    with pytest.raises(st.SchemaMismatchError, match="may not be null or missing"):
        db.sql("insert into orders (id) values (10)")
    db.sql("alter table orders alter column total set default 1")
    assert db.sql("insert into orders (id) values (10) returning total").fetchall() == [(1.0,)]
    db.sql("alter table orders alter column total drop not null")
    assert db.sql("insert into orders (id, total) values (11, null)").rows == 1


def test_returning_shows_the_defaults(db: st.Store) -> None:
    db.sql("create table t (id int primary key, n int default 3, u uuid default '"
           "00000000-0000-0000-0000-000000000007', w blob default 'ab')")  # fmt: skip
    found = db.sql("insert into t (id, u) values (1, default) returning *").fetchall()
    assert [(n, str(u), w) for _, n, u, w in found] == [
        (3, "00000000-0000-0000-0000-000000000007", b"ab")
    ]


def test_excluded_has_the_defaults_of_columns_that_are_left_out(db: st.Store) -> None:
    db.sql("create table c (id bigint primary key, n bigint default 7, s varchar, m bigint)")
    db.sql("insert into c values (1, 1, 'a', 1)")
    db.sql("insert into c (id) values (1) on conflict do update set n = excluded.n, s = excluded.s")
    assert db["c"].get(1) == {"id": 1, "n": 7, "s": None, "m": 1}
    db.sql("insert into c (id) values (1) on conflict do update set m = excluded.n + 1")
    assert db["c"].get(1) == {"id": 1, "n": 7, "s": None, "m": 8}
