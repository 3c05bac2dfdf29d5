"""SQL reads a store through its catalog: names, versions, times, and what Spark leaves out."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import register
from tests.spark.stores import fill

ORDERS = {
    "id": "int64",
    "c": "int32",
    "total": "decimal128(10,2)",
    "s": "string",
    "d": "date32",
    "x": "float64",
}


def _rows(count: int) -> list[dict[str, object]]:
    return [
        {
            "id": n,
            "c": n % 5,
            "total": Decimal(n) / 4,
            "s": None if n % 7 == 0 else f"x{n}",
            "d": dt.date(2020, 1, 1) + dt.timedelta(n),
            "x": float("nan") if n % 11 == 0 else n / 8,
        }
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("catalog") / "shop"
    with st.connect(found, background=False) as db:
        fill(db)
        db.create_table("orders", ORDERS, primary_key="id").upsert(_rows(1000))
        db.create_table("sales.eu.lines", {"n": "int64"}).append([{"n": 7}])
        db.create_table("nested", {"id": "int64", "l": "list<int32>"}, "id").upsert(
            [{"id": n, "l": None if n == 1 else [n, None]} for n in range(3)]
        )
        db.checkpoint()
        db.merge()
        db.tag("release")
        db["orders"].delete([5])
    return found


@pytest.fixture(scope="module")
def shop(spark: SparkSession, path: Path) -> SparkSession:
    found = register(spark.newSession(), stores={"shop": path})
    found.sql("USE shop")
    return found


def _all(spark: SparkSession, statement: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def _plan(spark: SparkSession, statement: str) -> str:
    return str(spark.sql(f"EXPLAIN {statement}").collect()[0][0])


def test_a_table_has_the_rows_of_all_levels(shop: SparkSession, path: Path) -> None:
    with st.connect(path, read_only=True) as db:
        for table in ("t", "events", "empty", "nested"):
            found = sorted(map(repr, _all(shop, f"SELECT * FROM shop.{table}")))
            stored = db[table].to_arrow().to_pylist()
            assert found == sorted(repr(tuple(row.values())) for row in stored), table


def test_a_name_has_its_namespaces(shop: SparkSession) -> None:
    assert _all(shop, "SELECT * FROM shop.sales.eu.lines") == [(7,)]
    assert _all(shop, "SHOW NAMESPACES IN shop") == [("sales",)]
    assert _all(shop, "SHOW NAMESPACES IN shop.sales") == [("sales.eu",)]
    assert [row[1] for row in _all(shop, "SHOW TABLES IN shop.sales.eu")] == ["lines"]


def test_show_tables_lists_those_of_the_namespace(shop: SparkSession) -> None:
    names = {row[1] for row in _all(shop, "SHOW TABLES")}
    assert names == {"t", "events", "empty", "orders", "nested"}


def test_a_namespace_that_is_not_there_is_refused(shop: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        shop.sql("SHOW TABLES IN shop.nowhere").collect()


def test_describe_and_properties_say_what_a_table_is(shop: SparkSession) -> None:
    assert _all(shop, "DESCRIBE orders")[:3] == [
        ("id", "bigint", None),
        ("c", "int", None),
        ("total", "decimal(10,2)", None),
    ]
    properties = dict(_all(shop, "SHOW TBLPROPERTIES orders"))
    assert properties["primaryKey"] == "id"
    assert int(str(properties["seq"])) > 0


def test_a_table_that_is_not_there_is_refused(shop: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        shop.sql("SELECT * FROM shop.nowhere")


def test_a_version_is_a_seq_or_a_tag(shop: SparkSession, path: Path) -> None:
    with st.connect(path, read_only=True) as db:
        tagged, now = db.tags()["release"], db.seq
    count = "SELECT count(*) FROM orders"
    assert _all(shop, f"{count} VERSION AS OF 'release'") == [(1000,)]
    assert _all(shop, f"{count} VERSION AS OF {tagged}") == [(1000,)]
    assert _all(shop, f"{count} VERSION AS OF {now}") == [(999,)]
    gone = "SELECT a.id FROM orders VERSION AS OF 'release' a ANTI JOIN orders b ON a.id = b.id"
    assert _all(shop, gone) == [(5,)]


def test_a_time_is_the_seq_of_then(shop: SparkSession) -> None:
    now = "SELECT count(*) FROM orders TIMESTAMP AS OF current_timestamp()"
    assert _all(shop, now) == [(999,)]


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ("VERSION AS OF 'nope'", "no tag 'nope'; the tags are audit, release"),
        ("VERSION AS OF 99999", "cannot read at seq 99999"),
        ("VERSION AS OF 99999999999999999999", "seq"),
        ("TIMESTAMP AS OF '2999-01-01'", "in the future"),
    ],
)
def test_a_version_that_is_not_there_is_named(shop: SparkSession, when: str, words: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        shop.sql(f"SELECT * FROM orders {when}")
    assert words in str(caught.value).split("\n", maxsplit=1)[0]


def test_only_the_columns_of_a_query_are_read(shop: SparkSession) -> None:
    assert "BatchScan orders[total#" in _plan(shop, "SELECT sum(total) FROM orders")


def _jobs(frame: DataFrame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


def test_a_count_is_in_the_plan(shop: SparkSession) -> None:
    counted = shop.sql("SELECT count(*), count(1) FROM orders")
    assert "LocalTableScan" in _jobs(counted)
    assert [tuple(row) for row in counted.collect()] == [(999, 999)]


def test_a_count_of_some_rows_reads_them(shop: SparkSession) -> None:
    assert _all(shop, "SELECT count(*) FROM orders WHERE c = 1") == [(200,)]
    assert _all(shop, "SELECT count(*) FROM orders WHERE id % 2 = 1") == [(499,)]
    assert _all(shop, "SELECT count(s) FROM orders") == [(999 - 143,)]


def test_a_limit_reads_no_more_rows(shop: SparkSession) -> None:
    limited = shop.sql("SELECT id FROM orders LIMIT 7")
    assert "limit 7" in _jobs(limited)
    assert len({row.id for row in limited.collect()}) == 7
    assert len(_all(shop, "SELECT 1 FROM orders LIMIT 5000")) == 999
    assert len(_all(shop, "SELECT id FROM orders LIMIT 5 OFFSET 997")) == 2
    assert len(_all(shop, "SELECT id FROM orders WHERE c = 1 LIMIT 300")) == 200


def test_a_limit_is_not_taken_before_the_rows_are_counted(shop: SparkSession) -> None:
    assert _all(shop, "SELECT count(*) FROM (SELECT * FROM orders LIMIT 10)") == [(10,)]


ANSWERED = {
    "id = 17": '("id" = 17)',
    "s LIKE 'x1%' AND (c = 1 OR c = 3)": '(("c" = 1) OR ("c" = 3))',
    "total > 3.00 AND total <= 200": '("total" > 3.00)',
    "NOT (s = 'x12')": "(NOT (\"s\" = 'x12'))",
    "s IS NULL": '("s" IS NULL)',
    "s <=> null": '("s" IS NULL)',
    "c IN (1, 2, null)": "OR NULL",
    "d >= date'2022-01-01'": "\"d\" >= DATE '2022-01-01'",
    "x > 100": '"x" <> "x"',
    "s LIKE '%7' OR s LIKE '%99%'": "LIKE '%99%'",
}


@pytest.mark.parametrize("where", ANSWERED)
def test_a_filter_that_the_store_answers_gives_the_rows_of_spark(
    shop: SparkSession, where: str
) -> None:
    statement = f"SELECT id FROM orders WHERE {where}"
    plan = _plan(shop, statement)
    assert ANSWERED[where] in plan
    found = {row[0] for row in _all(shop, statement)}
    shop.createDataFrame(
        [tuple(row.values()) for row in _rows(1000) if row["id"] != 5],
        "id bigint, c int, total decimal(10,2), s string, d date, x double",
    ).createOrReplaceTempView("rows_of_spark")
    wanted = {row[0] for row in _all(shop, f"SELECT id FROM rows_of_spark WHERE {where}")}
    assert found == wanted
    assert found


@pytest.mark.parametrize("where", ["id % 2 = 1", "upper(s) = 'X7'", "id = c", "c + 1 = 3"])
def test_a_filter_that_the_store_does_not_know_is_sparks(shop: SparkSession, where: str) -> None:
    plan = _plan(shop, f"SELECT id FROM orders WHERE {where}")
    assert "Filter" in plan.split("BatchScan")[0]
    assert len(_all(shop, f"SELECT id FROM orders WHERE {where}")) < 999


def test_a_deep_filter_is_sparks(shop: SparkSession) -> None:
    where = " OR ".join(f"(id = {n} AND c <> {n})" for n in range(2000))
    assert len(_all(shop, f"SELECT id FROM orders WHERE {where}")) > 0


def test_spark_knows_how_large_a_table_is(shop: SparkSession) -> None:
    stats = shop.table("orders").select("id")._jdf.queryExecution().optimizedPlan().stats()
    assert stats.sizeInBytes() == 999 * 16
    joined = shop.sql("SELECT * FROM t JOIN orders USING (id)")
    assert "BroadcastHashJoin" in _jobs(joined)


def test_one_scan_serves_two_equal_parts_of_a_query(shop: SparkSession) -> None:
    twice = shop.sql(
        "SELECT * FROM (SELECT c, sum(total) x FROM orders GROUP BY c) a"
        " JOIN (SELECT c, sum(total) x FROM orders GROUP BY c) b ON a.c = b.c"
    )
    assert len(twice.collect()) == 5
    assert "ReusedExchange" in _jobs(twice)


def test_tasks_say_how_long_they_waited_and_for_how_many_batches(shop: SparkSession) -> None:
    frame = shop.sql("SELECT id, s FROM orders")
    frame.collect()
    text = frame._jdf.queryExecution().executedPlan().collectLeaves().head().metrics().toString()
    assert "pythonWait" in text
    assert "batches" in text


def test_a_frame_of_another_api_reads_the_same(shop: SparkSession) -> None:
    assert shop.table("shop.orders").where("c = 1").count() == 200
    past = shop.read.option("versionAsOf", "release").table("shop.orders")
    assert past.count() == 1000


def test_rows_go_through_functions_of_python(shop: SparkSession) -> None:
    doubled = shop.table("orders").mapInArrow(lambda batches: batches, "id bigint, c int, "
        "total decimal(10,2), s string, d date, x double")  # fmt: skip
    assert doubled.where("id < 10").count() == 9
    assert doubled.limit(3).count() == 3


def test_a_join_of_two_stores_reads_both(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    with st.connect(tmp_path / "other") as db:
        db.create_table("names", {"c": "int32", "name": "string"}).append(
            [{"c": n, "name": f"n{n}"} for n in range(5)]
        )
    both = register(spark.newSession(), stores={"shop": path, "other": tmp_path / "other"})
    found = both.sql(
        "SELECT name, count(*) n FROM shop.orders JOIN other.names USING (c) GROUP BY name"
    ).collect()
    assert {row.name: row.n for row in found} == {
        "n0": 199, "n1": 200, "n2": 200, "n3": 200, "n4": 200
    }  # fmt: skip


def test_the_settings_of_a_catalog_say_which_store(shop: SparkSession, path: Path) -> None:
    assert shop.conf.get("spark.sql.catalog.shop.uri") == str(path)
    assert json.dumps(shop.conf.get("spark.sql.catalog.shop")).endswith('SiltstoneCatalog"')
