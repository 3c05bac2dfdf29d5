"""Columns with defaults: SQL and frames may leave them out, and what they give stays."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import register

_numbers = itertools.count()
COLUMNS = {
    "id": "int64", "n": "int32 not null", "s": "string", "d": "date", "x": "float64",
    "m": "decimal(10, 2)", "b": "binary", "t": "timestamp[us, tz=UTC]", "y": "bool",
}  # fmt: skip
DEFAULTS = {
    "n": 3, "s": "it's \\ \"so\"", "d": dt.date(2026, 1, 2), "x": 0.5, "m": Decimal("1.20"),
    "b": b"\0\xff", "t": dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), "y": True,
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", COLUMNS, "id", defaults=DEFAULTS)
        db.create_table("p", {"id": "int64", "n": "int32"}, defaults={"n": 3})
    return tmp_path / "s"


@pytest.fixture
def sql(spark: SparkSession, path: Path) -> Callable[[str], DataFrame]:
    name = f"defaults{next(_numbers)}"
    register(spark, stores={name: path})

    def run(text: str) -> DataFrame:
        spark.sql(f"USE {name}")
        try:
            return spark.sql(text)
        finally:
            spark.sql("USE spark_catalog")

    return run


def rows(path: Path, table: str = "t") -> list[dict[str, Any]]:
    with st.connect(path, read_only=True) as db:
        return db[table].to_arrow().sort_by("id").to_pylist()


def test_an_insert_of_sql_leaves_columns_out(sql: Callable[[str], DataFrame], path: Path) -> None:
    sql("INSERT INTO t (id) VALUES (1)")
    sql("INSERT INTO t (id, n, s) VALUES (2, DEFAULT, NULL)")
    sql("INSERT INTO p (id) SELECT id FROM t")
    assert rows(path) == [{"id": 1, **DEFAULTS}, {"id": 2, **DEFAULTS, "s": None}]
    assert rows(path, "p") == [{"id": 1, "n": 3}, {"id": 2, "n": 3}]


def test_an_update_and_a_merge_of_sql_say_default(
    sql: Callable[[str], DataFrame], path: Path
) -> None:
    sql("INSERT INTO t (id, n) VALUES (1, 10)")
    sql("UPDATE t SET n = DEFAULT WHERE id = 1")
    sql(
        "MERGE INTO t USING (SELECT 1 AS k UNION SELECT 2) AS u ON t.id = u.k"
        " WHEN MATCHED THEN UPDATE SET s = 'there' WHEN NOT MATCHED THEN INSERT (id) VALUES (u.k)"
    )
    assert rows(path) == [{"id": 1, **DEFAULTS, "s": "there"}, {"id": 2, **DEFAULTS}]


def test_a_frame_leaves_columns_out(spark: SparkSession, path: Path) -> None:
    frame = spark.createDataFrame([(1, "given"), (2, None)], "id long, s string")
    frame.write.format("siltstone").options(path=str(path), table="t", op="insert").mode(
        "append"
    ).save()
    assert rows(path) == [{"id": 1, **DEFAULTS, "s": "given"}, {"id": 2, **DEFAULTS, "s": None}]


def test_a_column_that_another_client_added_is_filled(
    sql: Callable[[str], DataFrame], path: Path
) -> None:
    with st.connect(path) as db:
        db["t"].add_column("more", "int64 not null", 7)
    sql("INSERT INTO t (id) VALUES (1)")
    assert sql("SELECT more FROM t").collect()[0][0] == 7
