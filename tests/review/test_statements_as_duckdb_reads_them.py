"""A statement that writes means what DuckDB reads in it, and is refused if DuckDB refuses it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.local.statements import inserts
from tests.server.stores import opened


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with opened(tmp_path / "shop") as found:
        found.sql("create table t (id bigint primary key, v bigint, s varchar)")
        found.sql("insert into t values (1, 10, 'a'), (2, 20, 'b'), (3, null, null)")
        yield found


def rows(db: st.Store, text: str = "from t order by id") -> list[Any]:
    return db.sql(text).fetchall()


@pytest.mark.parametrize(
    "text",
    [
        "delete from t where",
        "delete from t where -- id = 1",
        "delete from t where;",
        "delete from t using",
    ],
)
def test_a_delete_that_ends_behind_where_deletes_nothing(db: st.Store, text: str) -> None:
    with pytest.raises(st.RequestError):
        db.sql(text)
    assert len(rows(db)) == 3


@pytest.mark.parametrize(
    "text",
    [
        "insert into t values (5,,'x')",
        "insert into t (id, v) values (7, 1__0)",
        "insert into t (id, v) values (\u0666, 1)",
        "insert into t (id,) values (8)",
    ],
)
def test_an_insert_that_duckdb_cannot_read_is_refused(db: st.Store, text: str) -> None:
    with pytest.raises(st.RequestError):
        db.sql(text)
    assert len(rows(db)) == 3


def test_values_without_a_value_are_no_row(db: st.Store) -> None:
    db.sql("create table p (v bigint)")
    for text in ("insert into p values ()", "insert into p values (,)"):
        with pytest.raises(st.RequestError):
            db.sql(text)
    assert rows(db, "from p") == []


def test_a_comment_ends_at_a_carriage_return_as_duckdb_says(db: st.Store) -> None:
    assert db.sql("select 1 -- x\r + 1").fetchall() == [(2,)]
    assert db.sql("delete from t where id = 1 -- x\r and v = 99").rows == 0
    assert len(rows(db)) == 3


def test_a_clause_of_merge_that_draws_lots_writes_what_it_says(db: st.Store) -> None:
    db.sql("create table l (id bigint primary key, v bigint)")
    db.sql("insert into l select range, 0 from range(1000)")
    db.sql(
        "merge into l using (select range as id from range(1000)) s on l.id = s.id"
        " when matched and random() < 0.5 then update set v = 5"
    )
    assert {v for (v,) in rows(db, "select distinct v from l")} == {0, 5}


def test_a_clause_of_merge_that_draws_lots_inserts(db: st.Store) -> None:
    count = db.sql(
        "merge into t using (select range + 100 as id from range(1000)) s on t.id = s.id"
        " when not matched and random() < 0.5 then insert (id, v) values (s.id, 7)"
    ).rows
    assert count
    assert count == len(rows(db, "from t where v = 7"))


NS = [1577836800000000000, 1577836800000000123, 1577836900000000456]


@pytest.fixture
def moments(tmp_path: Path) -> Iterator[st.Store]:
    kind = pa.timestamp("ns", "UTC")
    with opened(tmp_path / "moments") as found:
        found.create_table("k", pa.schema([("id", kind), ("v", pa.int64())]), "id")
        found["k"].insert(pa.table({"id": pa.array(NS, kind), "v": [1, 2, 3]}))
        yield found


def held(db: st.Store) -> dict[Any, Any]:
    found = db["k"].scan().read_all()
    ids = found.column("id").cast(pa.int64()).to_pylist()
    return dict(zip(ids, found.column("v").to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("delete from k where v + 0 = 2", "delete_where"),
        ("delete from k using k as o where o.v = k.v", "delete_where"),
        ("update k set v = v + 10 where v >= 2", "update_where"),
        ("merge into k using k as o using (v) when matched then delete", "update_many"),
        ("insert into k select id + interval 1 hour, 7 from k", "insert"),
        ("insert into k values ('2020-01-01 00:00:00.000000999+00', 7)", "insert"),
    ],
)
def test_a_key_that_duckdb_would_cut_is_refused(moments: st.Store, text: str, instead: str) -> None:
    with pytest.raises(st.RequestError, match=rf"lose nanoseconds of column 'id'.*{instead}\("):
        moments.sql(text)
    assert held(moments) == {NS[0]: 1, NS[1]: 2, NS[2]: 3}


def test_statements_that_leave_keys_to_the_store_take_the_row_of_the_nanosecond(
    moments: st.Store,
) -> None:
    assert moments.sql("delete from k where v = 2").rows == 1
    assert held(moments) == {NS[0]: 1, NS[2]: 3}
    copied = pa.table({"id": pa.array([NS[1]], pa.timestamp("ns", "UTC")), "v": [9]})
    assert copied.num_rows == 1
    moments.sql("insert into k from copied")
    moments.sql("insert into k from copied on conflict do update set v = excluded.v")
    when = dt.datetime(2020, 1, 2, tzinfo=dt.UTC)
    moments.sql(
        "insert into k values ($when, 1 + 1), ($when, 3) on conflict do nothing", {"when": when}
    )
    assert held(moments) == {NS[0]: 1, NS[1]: 9, NS[2]: 3, 1577923200000000000: 2}


@pytest.mark.parametrize(
    "text",
    [
        "update a set w = w",
        "insert or replace into a select * from a",
        "insert into a values (1, null) on conflict do update set w = a.w",
        "merge into a using a as o using (id) when matched then update set w = o.w",
        "merge into a using a as o using (id) when matched then update",
    ],
)
@pytest.mark.parametrize("kind", [pa.timestamp("ns", "UTC"), pa.list_(pa.timestamp("ns", "UTC"))])
def test_a_value_that_duckdb_would_cut_is_refused(
    tmp_path: Path, kind: pa.DataType, text: str
) -> None:
    value = [5] if pa.types.is_list(kind) else 5
    with opened(tmp_path / "cut") as db:
        db.create_table("a", pa.schema([("id", pa.int64()), ("w", kind), ("n", pa.int64())]), "id")
        before = pa.table({"id": [1], "w": pa.array([value], kind), "n": [1]})
        db["a"].insert(before)
        with pytest.raises(st.RequestError, match="lose nanoseconds of column 'w'"):
            db.sql(text.replace("(1, null)", "(1, null, 1)"))
        assert db["a"].to_arrow().column("w").equals(before.column("w"))
        assert db.sql("update a set n = n + 1, w = null").rows == 1


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.timestamp("ns", "UTC"), NS[1]), (pa.duration("ns"), 123456789)]
)
def test_a_copy_that_duckdb_would_cut_is_refused(
    tmp_path: Path, kind: pa.DataType, value: int
) -> None:
    with opened(tmp_path / "copies") as db:
        for name in ("a", "b"):
            db.create_table(name, pa.schema([("id", pa.int64()), ("w", kind)]), "id")
        db["a"].insert(pa.table({"id": [1], "w": pa.array([value], kind)}))
        with pytest.raises(st.RequestError, match="lose nanoseconds of column 'w'"):
            db.sql("insert into b select * from a")
        assert db["b"].count() == 0


@pytest.mark.parametrize(
    "text",
    [
        "update t set v = 9 returning nosuch",
        "update t set v = 9 where id = 1 returning nosuch",
        "delete from t where id = 1 returning s::int",
        "delete from t where v + 0 = 10 returning s::int",
        "insert into t values (5, 5, 'e') returning s::int",
        "insert into t values (1, 5, 'e'), (7, 7, 'g') on conflict do nothing returning s::int",
        "insert or replace into t values (1, 5, 'e') returning nosuch",
        "insert into t values (1, 5, 'e') on conflict do update set v = 5 returning nosuch",
        "merge into t using t as o using (id) when matched then delete returning nosuch",
    ],
)
def test_a_refused_returning_leaves_the_transaction_open(db: st.Store, text: str) -> None:
    with db.transaction() as tx:
        tx.sql("insert into t values (4, 4, 'd')")
        with pytest.raises(st.RequestError):
            tx.sql(text)
        assert tx.sql("select count(*) from t").fetchall() == [(4,)]
    assert len(rows(db)) == 4


@pytest.mark.parametrize(("kind", "made"), [("uuid", "uuid()"), ("duration", "to_seconds(range)")])
def test_many_rows_of_any_type_are_inserted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, made: str
) -> None:
    monkeypatch.setattr(inserts, "STAGED_BYTES_MIN", 1 << 20)
    with opened(tmp_path / "large") as db:
        types = {"uuid": pa.uuid(), "duration": pa.duration("us")}
        db.create_table("b", pa.schema([("id", pa.int64()), ("w", types[kind])]), "id")
        assert db.sql(f"insert into b select range, {made} from range(300000)").rows == 300000


def test_or_replace_of_many_rows_takes_the_last_of_equal_keys(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "insert or replace into t (id, v) select range % 1000, range from range(3000)"
    monkeypatch.setattr(inserts, "STAGED_BYTES_MIN", 1)
    db.sql(text)
    assert rows(db, "select count(*), min(v) from t") == [(1000, 2000)]


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_row_far_behind_that_does_not_fit_is_named(
    db: st.Store, monkeypatch: pytest.MonkeyPatch, *, is_alone: bool
) -> None:
    db.create_table(
        "n",
        pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64(), nullable=False)]),
        "id",
    )
    monkeypatch.setattr(inserts, "STAGED_BYTES_MIN", 1 if is_alone else 1 << 30)
    text = "insert into n select range, nullif(range, 19999) from range(20001)"
    with pytest.raises(st.SchemaMismatchError, match="row 20000 of the statement"):
        db.sql(text)
    assert rows(db, "from n") == []


@pytest.mark.parametrize("count", [20_000])
def test_a_statement_of_a_short_text_is_not_called_too_long(db: st.Store, count: int) -> None:
    text = "insert into t (id, v) values " + ",".join(["(?,?)"] * count)
    assert len(text) < 1 << 18
    given = [value for place in range(count) for value in (place + 100, 1)]
    assert db.sql(text, given).rows == count


def test_a_long_list_in_where_is_left_to_duckdb(db: st.Store) -> None:
    places = ",".join(map(str, range(2, 20_002)))
    assert db.sql(f"delete from t where id in ({places})").rows == 2


def test_a_deep_condition_is_left_to_duckdb(db: st.Store) -> None:
    for depth in (30, 31, 32, 34):
        assert db.sql(f"delete from t where {'not ' * depth} id = 99").rows in {0, 3}


def test_a_table_that_is_renamed_stays_in_its_namespace(db: st.Store) -> None:
    db.sql("create table sales.orders (id bigint primary key)")
    db.sql("alter table sales.orders rename to items")
    assert db.sql("select count(*) from sales.items").fetchall() == [(0,)]


def test_parameters_are_called_as_in_queries(db: st.Store) -> None:
    assert db.sql("select $x + $X", {"x": 1}).fetchall() == [(2,)]
    assert db.sql("update t set v = $x where id = $X", {"x": 1}).rows == 1
    assert db.sql("select $1::int", {"1": 1}).fetchall() == [(1,)]
    assert db.sql("update t set v = 2 where id = $1", {"1": 1}).rows == 1


@pytest.mark.parametrize(
    "text",
    [
        (
            "merge into t using (values (1)) s(id) on case when s.id = t.id then true end"
            " when matched then delete"
        ),
        (
            "merge into t using (values (1)) s(id) on t.id = s.id when matched then delete"
            " returning t.id, t.v, merge_action"
        ),
        "/* /* */ */ insert into t values (8, 1, 'z')",
        (
            "with c as (select 5 as n) insert into t (id, v) values (1, 1)"
            " on conflict do update set v = (select n from c)"
        ),
    ],
)
def test_forms_that_duckdb_takes_are_taken(db: st.Store, text: str) -> None:
    assert db.sql(text).rows == 1
