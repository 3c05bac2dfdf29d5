"""CREATE, DROP and ALTER change tables as their methods do, in one commit or a transaction."""

from __future__ import annotations

import pyarrow as pa
import pytest

import siltstone as st


def test_a_table_has_the_columns_and_the_key_of_its_statement(db: st.Store) -> None:
    db.sql(
        'create table big (id bigint primary key, "the total" decimal(10, 2) not null, paid date,'
        " note varchar, tags varchar[], who struct(name varchar, age int))"
    )
    assert db["big"].primary_key == ("id",)
    assert db["big"].schema.field("the total") == pa.field("the total", pa.decimal128(10, 2), False)
    assert pa.types.is_struct(db["big"].schema.field("who").type)
    db.sql("create table pairs (a int, b date, primary key (a, b))")
    assert db["pairs"].primary_key == ("a", "b")
    db.sql("create table plain (a int)")
    assert db["plain"].primary_key == ()
    assert db.sql("insert into pairs values (1, '2026-01-01'), (1, '2026-01-02')").rows == 2


def test_a_table_is_made_of_the_rows_of_a_query(db: st.Store) -> None:
    text = "create table sums as select who, sum(total) as total from orders group by all"
    assert db.sql(text).rows == 3
    assert sorted(db.sql("select total from sums where total > 0").fetchall()) == [(10.0,), (20.0,)]
    db.sql("create or replace table sums (a, b) as select 1, 'x' with no data")
    assert (db["sums"].schema.names, db["sums"].count()) == (["a", "b"], 0)
    db.sql("create or replace table sums (a date)")
    assert db["sums"].schema.field("a").type == pa.date32()


def test_if_exists_and_if_not_exists_change_nothing(db: st.Store) -> None:
    before = db.seq
    with pytest.raises(st.TableExistsError):
        db.sql("create table ORDERS (a int)")
    db.sql("create table if not exists orders (a int)")
    db.sql("drop table if exists nope")
    db.sql("alter table if exists nope add column x int")
    db.sql("alter table orders add column if not exists who int")
    db.sql("alter table orders drop column if exists nope")
    assert db.seq == before
    for text in ("drop table nope", "alter table nope add x int"):
        with pytest.raises(st.TableNotFoundError):
            db.sql(text)


def test_columns_and_tables_are_renamed_added_and_dropped(db: st.Store) -> None:
    db.sql("alter table orders add column paid boolean")
    db.sql("alter table orders rename column who to name")
    db.sql("alter table orders drop day")
    db.sql("alter table orders rename to sales")
    assert db["sales"].schema.names == ["id", "name", "total", "paid"]
    db.sql("drop table sales")
    assert "sales" not in db
    assert db.sql("drop table events").seq == db.seq


def test_a_transaction_defines_and_fills_tables_in_one_commit(db: st.Store) -> None:
    before = db.seq
    with db.transaction() as tx:
        tx.sql("create table big (id bigint primary key, total double)")
        assert tx.sql("insert into big select id, total from orders where total > 15").rows == 1
        tx.sql("alter table big add column x int")
        tx.sql("update big set x = 7")
        assert "big" not in db
    assert db["big"].get(2) == {"id": 2, "total": 20.0, "x": 7}
    assert db.seq == before + 1
    with db.transaction() as tx:
        tx.sql("drop table big")
        tx.sql("create table big as from orders")
        tx.rollback()
    assert db["big"].count() == 1


def test_indexes_are_made_and_dropped_by_a_store(db: st.Store) -> None:
    db.sql("create index by_who on orders (who)")
    db.sql("create index if not exists by_who on orders (who)")
    db.sql("create index total on orders using bitmap (total)")
    assert [(each.name, each.kind) for each in db["orders"].indexes()][:2] == [
        ("by_who", "btree"), ("total", "bitmap")
    ]  # fmt: skip
    db.sql("drop index by_who")
    db.sql("drop index if exists by_who")
    with pytest.raises(st.RequestError, match="no index 'by_who'"):
        db.sql("drop index by_who")
    with db.transaction() as tx, pytest.raises(st.RequestError, match="no part of a transaction"):
        tx.sql("create index by_who on orders (who)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("create view v as select 1", "CREATE VIEW is not offered: tables and indexes"),
        ("create temp table x (a int)", "CREATE TEMP is not offered"),
        ("create schema s", "CREATE SCHEMA is not offered"),
        ("create unique index i on orders (who)", "only the primary key is unique"),
        ("create index on orders (who)", "CREATE INDEX is written as CREATE INDEX name ON table"),
        ("create index i on orders (who, day)", "an index is of one column"),
        ("create index i on orders using rtree (who)", "USING rtree is not offered"),
        ("create table x (a int default now())", "a default is a constant"),
        ("create table x (a int default ?)", "a default is a constant"),
        ("create table x (a int default current_date)", "a default is a constant"),
        ("create table x (a int default (select 1))", "a default is a constant"),
        ("create table x (a int default b)", 'column "b" was not found'),
        ("create table x (a int default 'x')", "column 'a' is int32, not 'x'"),
        ("create table x (a int primary key default 1)", "the key, which has no default"),
        ("create table x (a int[] default [1])", "it is no scalar"),
        ("create table x (a int check (a > 0))", "there are no CHECK constraints"),
        ("create table x (a int unique)", "only the primary key is unique"),
        ("create table x (a int, foreign key (a) references orders (id))", "no foreign keys"),
        ("create table x (a int generated always as (1))", "no generated columns"),
        ("create table x (a int, A date)", 'Column with name "?A"? already exists'),
        ("create table x (a int primary key, b int primary key)", "a table has one primary key"),
        ("create table x (a int, primary key (b))", "no column 'b'"),
        ("create table x (a nonsense)", "nonsense"),
        ("alter table orders alter total type int using 1", "USING is not offered"),
        ("alter table orders alter total set default 'x'", "column 'total' is double, not 'x'"),
        ("alter table orders alter total set default now()", "a default is a constant"),
        ("alter table orders alter total set not null", r"a null in the row \{'id': 3\}"),
        ("alter table orders alter id set default 1", "the key, which has no default"),
        ("alter table orders alter nope drop default", "no column 'nope'"),
        ("alter table orders add column x int not null", "needs a DEFAULT"),
        ("alter table orders add column x int default now()", "a default is a constant"),
        ("alter table orders add column x int primary key", "is no part of the key"),
        ("alter table orders drop column id", "id"),
        ("alter table orders drop column nope", "no column 'nope'"),
        ("drop view v", "DROP VIEW is not offered"),
        ("drop table orders cascade", "'cascade' is not offered"),
        ("begin", r"use db\.transaction\(\)"),
        ("commit", r"use db\.transaction\(\)"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(db: st.Store, text: str, words: str) -> None:
    before = db.seq
    with pytest.raises(st.RequestError, match=words):
        db.sql(text)
    assert db.seq == before
