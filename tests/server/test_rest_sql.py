"""SQL over REST: each kind of statement for its role, in transactions too, and nothing of files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.server import RestServer
from siltstone.server.rest.tokens import Role
from tests.server.rest import Answer, Rest, rest_of, rest_to
from tests.server.test_rest_security import TOKENS, as_role

ROWS = [{"id": n, "total": 1.0 * n, "placed": None} for n in range(5)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[st.Store, RestServer, Rest]]:
    with rest_of(tmp_path / "shop") as (db, service, rest):
        columns = {"id": "int64", "total": "float64", "placed": "date"}
        db.create_table("orders", columns, primary_key="id").upsert(ROWS)
        yield db, service, rest


def sql(rest: Rest, statement: str, parameters: Any = None, **headers: str) -> Answer:
    body = {"sql": statement} | ({} if parameters is None else {"parameters": parameters})
    return rest.post("/v1/sql", body, **headers)


def told(answer: Answer) -> tuple[list[Any], dict[str, Any]]:
    """Return the rows of an answer in lines, and its last line."""
    assert answer.status == 200, answer.body
    first, *rows, last = map(json.loads, answer.body.splitlines())
    assert all(set(each) == {"name", "type"} for each in first["columns"])
    assert last["rows"] == len(rows)
    return [each["row"] for each in rows], last


TELLING = [
    "select * from duckdb_settings()",
    'select value from "DuckDB_Settings"()',
    "select current_setting('temp_directory')",
    "select current_setting('temp_' || 'directory')",
    "select 'secret_directory'.current_setting()",
    "from duckdb_extensions()",
    "select setting from pg_settings",
    'from pg_catalog."PG_Settings"',
    "from query_table('pg_set' || 'tings')",
    "from query_table(['pg_set' || 'tings'])",
    "from query_table('pg_set'\n'tings')",
    "from query_table(e'pg\\x5fsettings')",
    "from \"query_table\"('pg_set' || 'tings')",
    "select 'query_table(' from query_table(')pg_set'[2:] || 'tings')",
    "select 'query_table(' from query_table/*'),*/('pg_set' || 'tings')",
    "select 'query_table('from\"query_table\"--'),\n('pg_set' || 'tings')",
    "insert into orders (id) select length(value) from duckdb_settings()",
]


@pytest.mark.parametrize("statement", TELLING)
def test_a_statement_tells_no_directory_of_the_server(served: Any, statement: str) -> None:
    db, service, rest = served
    answer = sql(rest, statement)
    assert answer.status == 400, answer.body
    assert "names directories of the server" in answer.json["error"]
    with (
        st.connect(service.url) as far,
        pytest.raises(st.RequestError, match="names directories of the server"),
    ):
        far.sql(statement)
    assert db["orders"].count() == 5


def test_a_table_is_named_by_a_text_but_by_no_expression(served: Any) -> None:
    """What names a table by an expression or a parameter names a view of settings, too."""
    _, _, rest = served
    named = "(select count(*) from query_table( 'orders' ))"
    rows, _ = told(sql(rest, f"select count(*) = {named} as x from orders"))
    assert rows == [{"x": True}]
    assert sql(rest, "from query_table(?)", ["pg_settings"]).status == 400


def test_a_setting_that_is_no_directory_is_told_and_a_home_to_nobody(served: Any) -> None:
    db, _, rest = served
    assert told(sql(rest, "select current_setting('threads') > 0 as x"))[0] == [{"x": True}]
    home = (
        "select value from duckdb_settings() where name in ('secret_directory', 'home_directory')"
    )
    assert all(str(Path.home()) not in str(value) for (value,) in db.sql(home).fetchall())
    refused = sql(rest, "select * from read_text('~/.bashrc')")
    assert refused.status == 400
    assert str(Path.home()) not in refused.json["error"]


def test_a_query_answers_with_lines_or_an_arrow_stream(served: Any) -> None:
    db, _, rest = served
    answer = sql(rest, "select id, total from orders where id < ? order by id", [2])
    rows, last = told(answer)
    assert rows == [{"id": 0, "total": 0.0}, {"id": 1, "total": 1.0}]
    assert last == {"rows": 2, "written": None, "seq": db.seq}
    assert answer.seq == db.seq
    named = sql(rest, "select sum(id) as n, count(*) as c from orders where id >= $x", {"x": 3})
    assert told(named)[0] == [{"n": 7, "c": 2}]
    twice = sql(rest, "select 1 as a, 'x' as a, 'NaN'::float as b")
    assert told(twice)[0] == [[1, "x", "NaN"]]
    stream = rest.post("/v1/sql?format=arrow", {"sql": "select id from orders where id = 4"})
    assert stream.rows == [{"id": 4}]
    assert told(sql(rest, "from orders where false"))[0] == []


def test_a_query_reads_as_its_snapshot_says(served: Any) -> None:
    db, _, rest = served
    seq = db.seq
    db["orders"].truncate()
    count = "select count(*) as n from orders"
    assert told(sql(rest, count))[0] == [{"n": 0}]
    then = sql(rest, count, x_siltstone_snapshot=f"seq:{seq}")
    assert (told(then)[0], then.seq) == ([{"n": 5}], seq)
    assert told(sql(rest, f"{count} at (version => ?)", [seq]))[0] == [{"n": 5}]
    refused = sql(rest, "delete from orders", x_siltstone_snapshot=f"seq:{seq}")
    assert refused.code == (403, 15)
    assert "for reads" in refused.json["error"]


def test_a_statement_that_writes_is_one_commit(served: Any) -> None:
    db, _, rest = served
    answer = sql(rest, "update orders set total = total + ? where id < 2 returning id, total", [1])
    rows, last = told(answer)
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 0, "total": 1.0},
        {"id": 1, "total": 2.0},
    ]
    assert last == {"rows": 2, "written": 2, "seq": db.seq}
    assert answer.seq == db.seq
    made = sql(rest, "create table more (id bigint primary key)")
    assert told(made) == ([], {"rows": 0, "written": 0, "seq": db.seq})
    assert told(sql(rest, "insert into more select id from orders"))[0] == [{"Count": 5}]
    assert told(sql(rest, "create index by_total on orders (total)"))[1]["seq"] is None
    assert [index.name for index in db["orders"].indexes()] == ["by_total"]
    dates = sql(rest, "insert into orders (id, placed) values (?, ?)", [9, "2026-01-02"])
    assert told(dates)[1]["written"] == 1
    assert told(sql(rest, "select placed from orders where id = 9"))[0] == [
        {"placed": "2026-01-02"}
    ]


def test_a_token_applies_a_statement_once(served: Any) -> None:
    db, _, rest = served
    add = "insert into orders (id) values (100)"
    first = told(sql(rest, add, x_siltstone_token="etl/1"))[1]
    again = told(sql(rest, add, x_siltstone_token="etl/1"))[1]
    assert again["seq"] == first["seq"] == db.seq
    assert db["orders"].count() == 6
    assert sql(rest, "from orders", x_siltstone_token="etl/2").code == (400, 13)
    index = "create index by_total on orders (total)"
    assert sql(rest, index, x_siltstone_token="etl/2").code == (400, 13)


def test_statements_of_a_transaction_see_each_other_and_commit_together(served: Any) -> None:
    db, _, rest = served
    seq, key = db.seq, rest.post("/v1/transaction/begin", {}).json["id"]
    mine = {"x_siltstone_txn": key}
    assert told(sql(rest, "create table big (id bigint primary key)", **mine))[1]["seq"] is None
    assert told(sql(rest, "insert into big select id from orders", **mine))[1]["written"] == 5
    assert told(sql(rest, "select count(*) as n from big", **mine))[0] == [{"n": 5}]
    arrow = rest.post("/v1/sql?format=arrow", {"sql": "select max(id) as m from big"}, **mine)
    assert arrow.rows == [{"m": 4}]
    assert sql(rest, "select count(*) from big").code == (404, 4)
    assert sql(rest, "create index b on big (id)", **mine).status == 400
    bad = sql(rest, "insert into big values (1)", **mine)
    assert bad.status in {400, 409}
    assert db.seq == seq
    assert rest.post(f"/v1/transaction/{key}/commit", {}).status == 200
    assert (db["big"].count(), db.seq) == (5, seq + 1)
    assert sql(rest, "from big", **mine).code == (404, 10)


@pytest.mark.parametrize(
    ("statement", "role"),
    [
        ("select 1", Role.READ),
        ("with x as (select 1) select * from x", Role.READ),
        ("/* insert into t values (1) */ from t", Role.READ),
        ("explain select 1", Role.READ),
        ("insert into t values (7)", Role.WRITE),
        ("with x as (select 8 as id) insert into t select id from x", Role.WRITE),
        ("-- select\nupdate t set id = id", Role.WRITE),
        ("delete from t where id = 7", Role.WRITE),
        ("merge into t using t s on t.id = s.id when not matched then insert", Role.WRITE),
        ("truncate t", Role.WRITE),
        ("create table made (id bigint primary key)", Role.ADMIN),
        ("alter table t add column more int", Role.ADMIN),
        ("create index i on t (id)", Role.ADMIN),
        ("drop index i", Role.ADMIN),
        ("drop table made", Role.ADMIN),
    ],
)  # fmt: skip
def test_a_statement_needs_the_role_of_its_kind_before_anything_runs(
    tmp_path_factory: pytest.TempPathFactory, statement: str, role: Role
) -> None:
    with rest_of(tmp_path_factory.mktemp("roles") / "s", tokens=TOKENS) as (db, service, _):
        db.create_table("t", {"id": "int64"}, primary_key="id")
        db.create_table("had", {"id": "int64"}, primary_key="id")
        if "made" in statement and "create" not in statement:
            db.create_table("made", {"id": "int64"}, primary_key="id")
        if statement.startswith("drop index"):
            db["t"].create_index("id", name="i")
        seq = db.seq
        for each in (Role.READ, Role.WRITE, Role.ADMIN):
            rest = as_role(service, each)
            key = rest.post("/v1/transaction/begin", {}).json["id"]
            if each < role:
                assert sql(rest, statement).code == (403, 15)
                assert sql(rest, statement, x_siltstone_txn=key).code == (403, 15)
                assert db.seq == seq
            else:
                assert sql(rest, statement).status == 200
            rest.close()
            if each == role:
                break


@pytest.mark.parametrize(
    "statement",
    [
        "select * from 'FILE'",
        "from read_csv('FILE')",
        "from read_text('FILE')",
        "from glob('/etc/*')",
        "select getenv('HOME')",
        "insert into orders select * from 'FILE'",
        "create table stolen as from 'FILE'",
        "insert into orders (id) select id from orders, read_csv('FILE')",
        "copy orders to 'FILE'",
        "attach 'FILE' as x",
        "install httpfs",
        "set enable_external_access = true",
        "select 1; select 2",
        "delete from orders; select 1",
        "select",
        "",
        "delete from orders where",
    ],
)
def test_what_is_no_statement_on_tables_is_refused_and_changes_nothing(
    served: Any, tmp_path: Path, statement: str
) -> None:
    db, _, rest = served
    file = tmp_path / "secret.csv"
    file.write_text("id,total\n7006652,1\n")
    seq = db.seq
    answer = sql(rest, statement.replace("FILE", str(file)))
    assert answer.status in {400, 404, 406}, answer.body
    assert "7006652" not in answer.json["error"]
    assert (db.seq, file.read_text()) == (seq, "id,total\n7006652,1\n")


@pytest.mark.parametrize(
    ("body", "query"),
    [
        ({}, ""),
        ({"sql": 1}, ""),
        ({"sql": "select 1", "parameters": 3}, ""),
        ({"sql": "select 1", "parameters": "x"}, ""),
        ({"sql": "select ?"}, ""),
        ({"sql": "select 1", "parameters": [1]}, ""),
        ({"sql": "insert into orders (id) values (?)"}, ""),
        ({"sql": "insert into orders (id) values (1)", "parameters": [1]}, ""),
        ({"sql": "select 1", "more": 1}, ""),
        ({"sql": "select 1"}, "?format=xml"),
        ({"sql": "select 1"}, "?other=1"),
        ({"sql": "select " + "1," * 600_000 + "1"}, ""),
        ({"sql": "select \ud800"}, ""),
    ],
)
def test_a_bad_request_is_one_sentence(served: Any, body: Any, query: str) -> None:
    db, _, rest = served
    seq = db.seq
    answer = rest.post(f"/v1/sql{query}", body)
    assert answer.status == 400, answer.body[:300]
    assert answer.code[0] == 400
    assert db.seq == seq


def test_many_rows_are_sent_as_they_are_read(served: Any) -> None:
    _, _, rest = served
    rows, last = told(sql(rest, "select range as n from range(100000)"))
    assert (len(rows), rows[-1], last["rows"]) == (100_000, {"n": 99_999}, 100_000)


def test_the_log_has_the_newest_commits(served: Any) -> None:
    db, _, rest = served
    with db.transaction(token=("etl", 3)) as tx:
        tx["orders"].delete([1])
        tx["orders"].add_column("note", "string")
    newest, *others = rest.get("/v1/log").json["commits"]
    wanted = db.log(1)[0]
    assert newest == {
        "seq": db.seq,
        "time": wanted.time.isoformat().replace("+00:00", "Z"),
        "transaction": wanted.transaction,
        "tables": ["orders"],
        "rows": 1,
        "token": "etl/3",
        "changes": ["add column orders.note"],
    }
    assert [each["seq"] for each in others] == list(range(db.seq - 1, 0, -1))
    assert len(rest.get("/v1/log?limit=1").json["commits"]) == 1
    assert rest.get("/v1/log?limit=0").json == {"commits": []}
    for query in ("limit=x", "limit=-1", "limit=10001", "more=1"):
        assert rest.get(f"/v1/log?{query}").code == (400, 13)


def test_a_diff_has_its_counts_first_then_its_rows(served: Any) -> None:
    db, _, rest = served
    db.create_table("same", {"id": "int64"}, primary_key="id")
    db.tag("before")
    seq = db.seq
    db["orders"].update(1, total=-1.0)
    db["orders"].delete([2])
    answer = rest.get(f"/v1/diff?a={seq}")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    old, table = {"total": 1.0, "placed": None}, {"table": "orders"}
    new = {**old, "total": -1.0}
    assert lines == [
        {"table": "orders", "added": 0, "removed": 1, "changed": 1},
        {"table": "same", "added": 0, "removed": 0, "changed": 0},
        {**table, "change": "changed", "key": {"id": 1}, "old": old, "new": new},
        {**table, "change": "removed", "key": {"id": 2}, "old": {**old, "total": 2.0}, "new": None},
        {"a": seq, "b": db.seq},
    ]
    assert answer.seq == db.seq
    counted = rest.get(f"/v1/diff?a=before&b={db.seq}&tables=orders&rows=false").body.splitlines()
    assert [json.loads(line) for line in counted] == [lines[0], {"a": seq - 1, "b": db.seq}]
    arrow = rest.get("/v1/diff?a=before&tables=orders&format=arrow")
    assert arrow.rows == db.diff(seq)["orders"].to_pylist()


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", (400, 13)),
        ("b=1", (400, 13)),
        ("a=nothing", (400, 13)),
        ("a=1&tables=none", (404, 4)),
        ("a=1&format=arrow", (400, 13)),
        ("a=1&format=x", (400, 13)),
        ("a=1&rows=maybe", (400, 13)),
        ("a=1&c=2", (400, 13)),
        ("a=99999", (404, 12)),
    ],
)
def test_a_bad_diff_is_refused(served: Any, query: str, code: tuple[int, int]) -> None:
    db, _, rest = served
    db.create_table("plain", {"id": "int64"})
    db.create_table("other", {"id": "int64"}, primary_key="id")
    assert rest.get(f"/v1/diff?{query}").code[0] == code[0]


def test_sql_has_the_time_of_a_statement_and_the_memory_of_the_store(tmp_path: Path) -> None:
    hurried = replace(Limits(), statement_timeout_s=0.5)
    with rest_of(tmp_path / "shop", limits=hurried) as (db, _, rest):
        db.create_table("t", {"id": "int64"}, primary_key="id").insert({"id": 1})
        seq = db.seq
        endless = "select count(*) from range(1000000000000) where range % 7 = 9"
        for statement in (endless, f"insert into t {endless}"):
            refused = sql(rest, statement)
            assert refused.code == (400, 13)
            assert "longer than 0.5 s" in refused.json["error"]
        assert db.seq == seq
    with (
        st.connect(tmp_path / "small", background=False, sql_memory_bytes_max=32 << 20) as db,
        rest_to(db) as (_, rest),
    ):
        most = sql(rest, "select list(range) from range(100000000)")
        assert most.status in {400, 429, 503}
        assert "sql_memory_bytes_max" in most.json["error"]
