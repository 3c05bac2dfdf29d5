"""`at (version => ..)` and `at (timestamp => ..)` read a table as it was, by its name of then."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from tests.query.levels import LEVELS, at_level
from tests.server.stores import joined_to

COLUMNS = {"id": "int64", "total": "float64"}


class Past:
    """A store with three states of a table, and of one in a namespace."""

    def __init__(self, db: st.Store) -> None:
        self.db = db
        db.create_table("orders", COLUMNS, primary_key="id")
        db.create_table("sales.orders", COLUMNS, primary_key="id")
        self.empty = db.seq
        db["orders"].upsert([{"id": n, "total": 1.0 * n} for n in range(5)])
        db["sales.orders"].insert({"id": 7, "total": 7.0})
        self.five = db.seq
        self.time = dt.datetime.now(dt.UTC)
        db["orders"].upsert({"id": 1, "total": 100.0})
        db["orders"].delete([2])
        db["sales.orders"].truncate()
        self.four = db.seq

    def rows(self, sql: str, parameters: Any = None) -> list[Any]:
        """Return what a statement finds; its versions are written as FIVE, FOUR and EMPTY."""
        return self.db.sql(self.said(sql), parameters).fetchall()

    def said(self, sql: str) -> str:
        for name, seq in (("FIVE", self.five), ("FOUR", self.four), ("EMPTY", self.empty)):
            sql = sql.replace(name, str(seq))
        return sql


@pytest.fixture(scope="module", params=LEVELS)
def past(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Past]:
    with st.connect(tmp_path_factory.mktemp("moments") / "s", background=False) as db:
        made = Past(db)
        at_level(db, request.param)
        yield made


@pytest.mark.parametrize(
    ("sql", "parameters", "rows"),
    [
        ("select count(*) from orders at (version => FIVE)", None, [(5,)]),
        ("select total from orders at (version => FIVE) where id = 1", None, [(1.0,)]),
        ("select total from orders AT(VERSION=>$1) where id = $2", ["FIVE", 1], [(1.0,)]),
        ("select total from orders at (version => ?) where id = ?", ["FIVE", 1], [(1.0,)]),
        ("select id from orders at (version => $v) where id = $i", {"v": "FIVE", "i": 2}, [(2,)]),
        ("select max(id), min(id) from orders at (version => FIVE)", None, [(4, 0)]),
        ("select orders.id from orders at (version => FIVE) where orders.id = 2", None, [(2,)]),
        ("select o.id from orders o at (version => FIVE) where o.id = 2", None, [(2,)]),
        ("select o.id from orders as o at (version => FIVE) where o.id = 2", None, [(2,)]),
        ("select o.id from orders at (version => FIVE) as o where o.id = 2", None, [(2,)]),
        ('select count(*) from "orders" at /* then */ (version => FIVE) -- five', None, [(5,)]),
        ("select id from main.orders at (version => FIVE) where id = 2", None, [(2,)]),
        ("select orders.id from sales.orders at (version => FIVE)", None, [(7,)]),
        ('select id from "sales.orders" at (version => FIVE)', None, [(7,)]),
        ("select count(*) from sales.orders", None, [(0,)]),
        ("select id from orders at (version => FIVE) order by id desc limit 2", None, [(4,), (3,)]),
        (
            "select id, t.total, n.total from orders t at (version => FIVE)"  # noqa: ISC004
            " join orders n using (id) where t.total <> n.total",
            None,
            [(1, 1.0, 100.0)],
        ),
        (
            "select count(*) from orders a at (version => FIVE), orders b at (version => FOUR)",
            None,
            [(20,)],
        ),
        (
            "with orders as (from orders at (version => FIVE)) select count(*) from orders",
            None,
            [(5,)],
        ),
        ("select (select count(*) from orders at (version => EMPTY)), 1", None, [(0, 1)]),
        ("select id from (orders at (version => FIVE) anti join orders using (id))", None, [(2,)]),
        ("select 'from orders at (version => 1)' as t", None, [("from orders at (version => 1)",)]),
        ("select 1 /* from orders at (version => 99) */ -- at (version => 99)", None, [(1,)]),
        ("select a.id from orders as a where a.id = 1 -- at =>", None, [(1,)]),
    ],
)  # fmt: skip
def test_a_table_at_a_version_has_the_rows_of_then(
    past: Past, sql: str, parameters: Any, rows: list[Any]
) -> None:
    given = parameters
    if isinstance(parameters, list):
        given = [past.five if each == "FIVE" else each for each in parameters]
    if isinstance(parameters, dict):
        given = {k: past.five if each == "FIVE" else each for k, each in parameters.items()}
    assert past.rows(sql, given) == rows
    with past.db.snapshot() as now:
        assert now.sql(past.said(sql), given).fetchall() == rows
    with past.db.transaction() as tx:
        assert tx.sql(past.said(sql), given).fetchall() == rows
        tx.rollback()


def test_a_plan_may_be_of_a_table_of_then(past: Past) -> None:
    ((kind, plan),) = past.rows("explain select id from orders at (version => FIVE) where id = 2")
    assert (kind, "id" in plan) == ("physical_plan", True)
    (first, *_) = past.rows("describe select total from orders at (version => FIVE)")
    assert first[:2] == ("total", "DOUBLE")


def test_a_time_is_that_of_the_last_commit_before_it(past: Past) -> None:
    count = "select count(*) from orders at (timestamp => {})"
    assert past.rows(count.format("?"), [past.time]) == [(5,)]
    assert past.rows(count.format(f"'{past.time.isoformat()}'")) == [(5,)]
    assert past.rows(count.format(f"timestamptz '{past.time.isoformat()}'")) == [(5,)]
    with past.db.snapshot(seq=past.five) as then:  # it knows no commit that came later
        now = dt.datetime.now(dt.UTC)
        assert then.sql(count.format("$now"), {"now": now}).fetchall() == [(5,)]


@pytest.mark.parametrize(
    ("sql", "error", "text"),
    [
        ("from orders at (version => 999)", st.SnapshotExpiredError, "seq 999"),
        ("from orders at (version => -1)", st.SnapshotExpiredError, "seq -1"),
        ("from orders at (version => '3')", st.RequestError, "must be an integer; got '3'"),
        ("from orders at (version => 3.0)", st.RequestError, "must be an integer; got 3.0"),
        ("from orders at (version => true)", st.RequestError, "must be an integer; got True"),
        ("from orders at (version => null)", st.RequestError, "must be an integer; got None"),
        ("from orders at (version => 1 + 1)", st.RequestError, "a constant or a parameter"),
        ("from orders at (version => id)", st.RequestError, "a constant or a parameter"),
        ("from orders at (version => 1, 2)", st.RequestError, "has one value"),
        ("from orders at (version => )", st.RequestError, "has one value"),
        ("from orders at (version => ?)", st.RequestError, "was not given"),
        ("from orders at (version => 1", st.RequestError, "is not closed"),
        ("from orders at (timestamp => 3)", st.RequestError, "a datetime with a zone"),
        ("from orders at (timestamp => '2026-01-01')", st.RequestError, "has no zone"),
        ("from orders at (timestamp => '2999-01-01T00:00Z')", st.SnapshotExpiredError, "future"),
        ("from orders at (timestamp => '1999-01-01T00:00Z')", st.TableNotFoundError, "at seq 0"),
        ("from nothing at (version => FIVE)", st.TableNotFoundError, "'nothing'"),
        ("from query_table(orders) at (version => FIVE)", st.RequestError, "syntax error"),
        ("from f('orders') at (version => FIVE)", st.RequestError, "syntax error"),
        ("from search('orders', 'x') at (version => FIVE)", st.RequestError, "snapshot of then"),
        ("from orders at (tag => 'x')", st.RequestError, "syntax error"),
        ("from (select 1) x at (version => FIVE)", st.RequestError, "syntax error"),
        ("insert into orders at (version => FIVE) values (1, 2)", st.RequestError, "near .at"),
        ("delete from orders at (version => FIVE)", st.RequestError, "followed by"),
        ("update orders at (version => FIVE) set total = 1", st.RequestError, "followed by"),
        ("from orders at (version => 1)" + ", x at (version => 1)" * 16, st.RequestError, "16"),
    ],
)  # fmt: skip
def test_what_is_no_moment_is_refused(
    past: Past, sql: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text.replace("(", r"\(")):
        past.rows(sql)


def test_a_snapshot_knows_no_version_that_is_later(past: Past) -> None:
    with past.db.snapshot(seq=past.five) as then:
        empty = past.said("select count(*) from orders at (version => EMPTY)")
        assert then.sql(empty).fetchall() == [(0,)]
        with pytest.raises(st.SnapshotExpiredError, match=f"seq {past.four}"):
            then.sql(past.said("from orders at (version => FOUR)"))


def test_what_a_transaction_wrote_is_not_in_the_past(past: Past) -> None:
    with past.db.transaction(isolation="serializable") as tx:
        tx["orders"].insert({"id": 77, "total": 0.0})
        both = "select (select count(*) from orders), count(*) from orders at (version => FOUR)"
        assert tx.sql(past.said(both)).fetchall() == [(5, 4)]
        tx.rollback()


JOINED = "merge into orders o using orders p at (version => FIVE) on o.id = p.id"
WRITES: list[tuple[str, Any]] = [
    ("insert into orders select * from orders at (version => FIVE) where id = ?", [2]),
    (
        "update orders o set total = p.total from orders p at (version => FIVE) where p.id = o.id",
        None,
    ),
    (
        "delete from orders o using orders p at (version => FIVE) where p.id = o.id and p.id > $1",
        [2],
    ),
    (f"{JOINED} when not matched then insert (id, total) values (p.id, -p.total)", None),
    (f"{JOINED} when matched and p.id = 0 then delete", None),
    ("create table old as from orders at (version => FIVE)", None),
]


def test_statements_that_write_read_the_past(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        past = Past(db)
        wrote = [db.sql(past.said(sql), given).rows for sql, given in WRITES]
        assert wrote == [1, 5, 2, 2, 1, 5]
        assert past.rows("from orders order by id") == [(1, 1.0), (2, 2.0), (3, -3.0), (4, -4.0)]


def test_a_table_that_is_gone_or_was_called_otherwise_has_its_name_of_then(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        past = Past(db)
        db.rename_table("orders", "old")
        db.drop_table("sales.orders")
        db.create_table("orders", {"x": "string"})
        assert past.rows("select count(*) from orders at (version => FIVE)") == [(5,)]
        assert past.rows("select id from sales.orders at (version => FIVE)") == [(7,)]
        assert past.rows("select count(*) from orders") == [(0,)]
        with pytest.raises(st.TableNotFoundError, match="'old'"):
            past.rows("from old at (version => FIVE)")


def test_names_are_told_apart_as_duckdb_does(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        for name in ("Orders", "a-b", "date", "Twice", "twice"):
            db.create_table(name, data=[{"id": 1, "name": name}], primary_key="id")
        seq = db.seq
        for name in db.tables():
            db[name].truncate()
        for text, name in (
            ("orders", "Orders"),
            ("MAIN.oRDERS", "Orders"),
            ('"orders" o', "Orders"),
            ('"A-b" as "z z"', "a-b"),
            ("date", "date"),
            ("date as d", "date"),
            ('"Twice"', "Twice"),
            ("twice", "twice"),
        ):
            assert db.sql(f"select name from {text} at (version => {seq})").fetchall() == [(name,)]
        with pytest.raises(st.RequestError, match="does not distinguish"):
            db.sql(f"from TWICE at (version => {seq})")


def test_a_version_that_is_not_kept_is_refused_and_one_with_a_tag_is_read(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False, retention=0) as db:
        past = Past(db)
        db.tag("five", seq=past.five)
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        with pytest.raises(st.SnapshotExpiredError):
            past.rows("from orders at (version => EMPTY)")
        assert past.rows("select count(*) from orders at (version => FIVE)") == [(5,)]


def test_other_processes_read_the_past(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        past, sql = Past(db), "select count(*) from orders at (version => ?)"
        timed = "select count(*) from orders at (timestamp => ?)"
        with st.connect(db.serve(port=0).url) as remote, joined_to(db) as joined:
            for other in (remote, joined):
                assert other.sql(sql, [past.five]).fetchall() == [(5,)]
                with other.transaction() as tx:
                    tx["orders"].insert({"id": 50, "total": 0.0})
                    assert tx.sql(sql, [past.five]).fetchall() == [(5,)]
                    assert tx.sql(timed, [past.time]).fetchall() == [(5,)]
                    tx.rollback()
                with other.snapshot() as now:
                    assert now.sql(timed, [past.time]).fetchall() == [(5,)]
        with st.connect(tmp_path / "s", read_only=True) as reader:
            assert reader.sql(sql, [past.five]).fetchall() == [(5,)]
