"""A statement is one query, or the plan of one, and nothing that it calls outlives it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from siltstone.errors import RequestError
from tests.query.scannable import Recording, result_of

ROWS = pa.table({"id": [1, 2, 3]})
PLANS = [
    "EXPLAIN SELECT * FROM t",
    "explain analyze select * from t",
    "EXPLAIN (FORMAT json) SELECT * FROM t",
    "EXPLAIN (ANALYZE, FORMAT json) SELECT * FROM t",
    "-- a plan\nEXPLAIN /* with times */ ANALYZE (SELECT * FROM t)",
    "EXPLAIN (WITH x AS (FROM t) FROM x)",
    "EXPLAIN DESCRIBE t",
]
NO_QUERIES = [
    "CREATE VIEW v AS SELECT 1",
    "CREATE TABLE x (i INT)",
    "CREATE MACRO f() AS 1",
    "SET threads = 9",
    "INSERT INTO t VALUES (4)",
    "COPY t TO '/tmp/siltstone-never'",
    "CALL pragma_version()",
    "EXECUTE p",
    "LOAD httpfs",
]
OUTLIVING = [
    "SELECT * FROM enable_logging('QueryLog')",
    "SELECT * FROM enable_logging('QueryLog', storage := 'file', storage_path := '/dev/shm/x')",
    "SELECT * FROM system.main.disable_logging()",
    "SELECT * FROM truncate_duckdb_logs()",
    "SELECT \"Write_Log\" /* here */ ('x')",
    "SELECT ('x').write_log()",
    "EXPLAIN ANALYZE SELECT write_log('x')",
    "SELECT * FROM enable_profiling(format := 'json')",
    "SELECT 'Ä', * FROM checkpoint()",
    "SELECT * FROM query('select * from enable_' || 'logging()')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('select 1'))",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM python_arrow_scan(1, 2, 3)",
    "SELECT * FROM add_grammar_extension('x')",
    "SELECT * FROM register_external_resource_type('x')",
]


@pytest.mark.parametrize("text", PLANS)
def test_the_plan_of_a_query_is_shown(text: str) -> None:
    assert len(result_of(text, lambda _: Recording(ROWS), ["t"]))


@pytest.mark.parametrize("verb", ["EXPLAIN", "EXPLAIN ANALYZE", "explain (analyze)"])
@pytest.mark.parametrize("text", NO_QUERIES)
def test_what_is_no_query_has_no_plan(text: str, verb: str) -> None:
    with pytest.raises(RequestError, match=r"EXPLAIN is for a query, and this is of"):
        result_of(f"{verb} {text}", lambda _: Recording(ROWS), ["t"])


@pytest.mark.parametrize("text", OUTLIVING)
def test_a_function_whose_effect_outlives_the_statement_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"no statement calls \w+\("):
        result_of(text, lambda _: Recording(ROWS), ["t"])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'write_log(1)' AS x",
        "SELECT 1 AS checkpoint, 2 AS query",
        "SELECT query.id FROM t AS query WHERE (query.id) > 2",
        "SELECT 1 -- write_log()",
        "SELECT $$ query( $$",
        "SELECT count(*) FROM (DESCRIBE SELECT 1 AS query)",
        "EXPLAIN SELECT 1 AS query",
    ],
)
def test_a_word_is_no_call(text: str) -> None:
    assert len(result_of(text, lambda _: Recording(ROWS), ["t"])) == 1


def test_a_statement_too_deep_to_be_checked_is_refused_if_it_may_call_one() -> None:
    deep = "SELECT " + "(" * 800 + "1" + " + 1)" * 800 + " AS query"
    with pytest.raises(
        RequestError, match=r"has none of the words query|no statement|DuckDB refuses"
    ):
        result_of(deep, lambda _: Recording(ROWS), ["t"])
