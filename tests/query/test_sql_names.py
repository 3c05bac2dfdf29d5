"""A statement reads the tables, the frames and the queries of WITH that DuckDB would read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.errors import RequestError, TableNotFoundError
from siltstone.query.sql.names import reads_of
from tests.nightly import by_day

TABLES = ("a", "b", "t")
STATEMENTS = [
    "with t as (select * from t) select * from t",
    "with a as (select * from b), b as (select 'cte' x) select * from a",
    "with recursive a as (select * from b), b as (select 'cte' x) select * from a",
    "with recursive t as (select * from t) select * from t",
    "with recursive t as (select 'r' x union all select 'q' from t where x = 'r') select * from t",
    "with recursive t as (select x from t union all select 'q') select * from t",
    "with recursive t as ((select 'r' x union select 'q' from t where x = 'r')) select * from t",
    (
        "with recursive t as (with b as (select 'r' x) from b union all select 'q' from t"
        " where x = 'r') from t, b"
    ),
    "with recursive t as (select 'k' x intersect select x from t) select * from t",
    "select * from (with a as (select 'cte' x) select * from a) union all select * from a",
    "with a as (select 'cte' x) select * from a union all select * from a",
    "(with a as (select 'cte' x) select * from a) union all select * from a",
    "with A as (select 'cte' x) from a",
    "with a as (select 'cte' x) select (select x from a), * from b where exists (from a)",
    "with a as (select 'cte' x) select * from main.a",
    "with a as (with b as (select 'inner' x) from b) select * from a, b",
    "with a as (select 'cte' x), c as (from a) select * from c",
    "select * from a where x in (with a as (select 'of a' x) select x from a)",
    "with a as materialized (select 'cte' x) select * from a",
    "with a(x) as (values ('cte')) select * from a join b on true",
    "with a as (select 'cte' x) select * from (from a) q",
    "select * from a union all (with a as (select 'cte' x) from a)",
    "with a as (select 'cte' x) select * from b where x in (select x from a union from t)",
]


@pytest.fixture
def native() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    for name in TABLES:
        connection.execute(f"CREATE TABLE {name} AS SELECT 'of {name}' AS x")
    yield connection
    connection.close()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as store:
        yield store


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_query_of_with_stands_for_a_table_where_it_does_to_duckdb(
    db: st.Store, native: duckdb.DuckDBPyConnection, text: str
) -> None:
    for name in TABLES:
        db.create_table(name, data=pa.table({"x": [f"of {name}"]}))
    assert sorted(db.sql(text).fetchall()) == sorted(native.execute(text).fetchall())


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_frame_is_read_only_where_no_query_of_with_stands_for_it(
    db: st.Store, native: duckdb.DuckDBPyConnection, text: str
) -> None:
    if "main.a" in text:
        return  # a frame is in no schema
    a, b, t = (pa.table({"x": [f"of {name}"]}) for name in TABLES)
    assert [a, b, t]
    assert sorted(db.sql(text).fetchall()) == sorted(native.execute(text).fetchall())


def test_a_query_of_with_may_have_the_name_of_any_variable(db: st.Store) -> None:
    rows, n = [1, 2], 5
    assert rows
    assert n
    plain = "with rows as (select 1 as x) select * from rows"
    again = "with recursive n(x) as (select 1 union all select x + 1 from n where x < 3) from n"
    assert db.sql(plain).fetchall() == [(1,)]
    assert db.sql(again).fetchall() == [(1,), (2,), (3,)]
    assert db.sql_reader(plain).read_all().to_pylist() == [{"x": 1}]
    with db.snapshot() as now:
        assert now.sql(again).fetchall() == [(1,), (2,), (3,)]
    with pytest.raises(TableNotFoundError, match="variable 'rows' is of type list"):
        db.sql("select * from (with rows as (select 1) from rows), rows")


def test_a_function_is_no_variable(db: st.Store) -> None:
    read_csv = 5
    assert read_csv
    with pytest.raises(RequestError, match="is a file, which no statement reads or writes"):
        db.sql("select * from read_csv('x.csv')")


def test_a_statement_of_many_queries_is_read_in_time_that_grows_with_it() -> None:
    count = 2_000
    parts = ", ".join(f"q{n} as (select {n})" for n in range(count))
    text = f"with {parts} " + " union all ".join(f"select * from q{n}" for n in range(count))
    assert reads_of(text).others([]) == []


# Columns that differ only by case


def _alike(db: st.Store) -> None:
    table = db.create_table("c", {"id": "int64", "total": "int64", "Total": "int64"}, "id")
    table.insert([{"id": 1, "total": 10, "Total": 20}, {"id": 2, "total": 30, "Total": 5}])


SAID = "does not tell the columns 'total' and 'Total' of 'c' apart; rename one, or use scan"


@pytest.mark.parametrize("text", ['select id from c where "Total" > 15', "describe c"])
def test_a_table_with_columns_that_differ_only_by_case_is_refused(db: st.Store, text: str) -> None:
    _alike(db)
    calls: list[Callable[[str], Any]] = [db.sql, db.sql_reader]
    with db.snapshot() as now:
        for call in [*calls, now.sql, now.sql_reader]:
            with pytest.raises(RequestError, match=SAID):
                call(text)
    assert db["c"].count('"Total" > 15') == 1


def test_such_a_table_is_listed_and_may_be_hidden_by_a_query_of_with(db: st.Store) -> None:
    _alike(db)
    assert db.sql("show tables").fetchall() == [("c",)]
    assert db.sql("with c as (select 1 as x) from c").fetchall() == [(1,)]


def test_letters_that_duckdb_tells_apart_are_no_reason_to_refuse(db: st.Store) -> None:
    db.create_table("c", {"é": "int64", "É": "int64"}).append({"é": 1, "É": 2})
    assert db.sql('select "É", "é" from c').fetchall() == [(2, 1)]


def test_a_search_and_a_frame_with_such_columns_are_refused(db: st.Store) -> None:
    schema = {"id": "int64", "Id": "int64", "v": "vector(float32, 2)"}
    db.create_table("c", schema, "id").insert({"id": 1, "Id": 2, "v": [0.0, 1.0]})
    with pytest.raises(RequestError, match="'id' and 'Id' of 'c'"):
        db.sql("select * from search('c', [0, 1], k => 1)")
    frame = pd.DataFrame({"a": [1], "A": [2]})
    assert len(frame)
    with pytest.raises(RequestError, match="'a' and 'A' of 'frame'"):
        db.sql("select * from frame")


# Statements of one table, which no parser has to read

PIECES = {
    "chosen": [
        "*",
        "id",
        "count(*)",
        "count( )",
        "count",
        "COUNT(*), 1",
        'x."count"',
        "a + b AS c",
        "sum(x) FILTER (WHERE y)",
        "extract(year FROM at)",
        "(SELECT 1)",
        "DISTINCT a",
        "coalesce(a, 'from u')",
        "[1, 2]",
        "$$from u$$",
    ],
    "table": [
        "t",
        "T",
        "main.t",
        "memory.main.t",
        '"t"',
        '"a ""b"""',
        "sales.lines",
        "t AS x",
        "t x",
        't "x"',
        "t, u",
        "t JOIN u USING (id)",
        "range(5)",
        "(FROM t)",
        "'t.csv'",
        "t TABLESAMPLE 5%",
        "only",
        "query_table('t')",
        "t x (a, b)",
        "t.",
        "t /* , u */",
        "t -- , u\n",
    ],
    "behind": [
        "",
        "WHERE a = 1",
        "WHERE a IN (1, 2)",
        "WHERE a IN (FROM u)",
        "WHERE EXISTS (FROM u)",
        "GROUP BY ALL",
        "ORDER BY 1 LIMIT 5",
        "WHERE s = ', u'",
        "UNION ALL FROM u",
        "WHERE a = ?",
        "LIMIT (SELECT 1)",
        "WINDOW w AS ()",
        ";",
        "-- FROM u",
        "WHERE s = 'Ü'",
    ],
}


@settings(max_examples=by_day(400, 4_000))
@given(
    chosen=some.sampled_from(PIECES["chosen"]),
    table=some.sampled_from(PIECES["table"]),
    behind=some.sampled_from(PIECES["behind"]),
    form=some.sampled_from(
        [
            "SELECT {0} FROM {1} {2}",
            "from {1} select {0} {2}",
            "EXPLAIN SELECT {0} from {1} {2}",
            "WITH u AS (FROM v) SELECT {0} FROM {1} {2}",
        ]
    ),
)
def test_what_is_read_without_a_parser_is_what_the_parser_finds(
    chosen: str, table: str, behind: str, form: str
) -> None:
    text = form.format(chosen, table, behind)
    found = reads_of(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("siltstone.query.sql.names.one_table", lambda _: None)
        parsed = reads_of(text)
    if parsed.written is not None:
        assert found == parsed


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t WHERE id = ?",
        "select a, count(*), sum(b) from t group by a",
        "SELECT count(*) FROM main.t",
        "SELECT a FROM sales.lines AS x WHERE a IN (1, 2) ORDER BY a LIMIT 5;",
    ],
)
def test_common_statements_need_no_parser(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("siltstone.query.sql.names._tables_of", lambda _: None)
        assert reads_of(text).written
