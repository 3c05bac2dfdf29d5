"""A table with a column of times of day is read like any other, however Spark comes to it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import register, snapshot

EARLY, LATE = dt.time(1, 2, 3, 4), dt.time(13)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "store"
    with st.connect(found, background=False) as db:
        table = db.create_table("t", {"id": "int64", "at": pa.time64("us")}, primary_key="id")
        table.upsert([{"id": 1, "at": EARLY}, {"id": 2, "at": LATE}, {"id": 3, "at": LATE}])
        db.checkpoint()
        table.upsert({"id": 4, "at": None})
    return found


@pytest.fixture
def views(spark: SparkSession, path: Path) -> Iterator[list[str]]:
    loaded = spark.read.format("siltstone").load(str(path / "t"))
    loaded.createOrReplaceTempView("loaded_t")
    with snapshot(spark, path) as shop:
        shop.create_views(prefix="pinned_")
        shop.create_views(prefix="live_", live=True)
        yield ["loaded_t", "pinned_t", "live_t"]


def test_a_column_of_times_is_counted_filtered_and_grouped(
    spark: SparkSession, views: list[str]
) -> None:
    for view in views:
        assert spark.table(view).count() == 4, view
        late = spark.sql(f"select id from {view} where at > time'12:00:00' order by id").collect()
        assert [row.id for row in late] == [2, 3], view
        groups = spark.sql(f"select at, count(*) n from {view} group by at order by at").collect()
        assert [tuple(row) for row in groups] == [(None, 1), (EARLY, 1), (LATE, 2)], view


def test_a_session_of_others_reads_it_once_it_is_registered(
    spark: SparkSession, path: Path
) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.timeType.enabled", "false")
    register(other)
    assert other.read.format("siltstone").load(str(path / "t")).where("at is null").count() == 1
