"""A Python process of an executor gives freed memory back: it stays, and is not the store's."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.local.snapshot import LocalSnapshot
from siltstone.process import malloc
from siltstone.spark.context.options import WriteOptions
from siltstone.spark.context.schemas import to_spark
from siltstone.spark.reads.nearest import NearestRows
from siltstone.spark.writes import maintenance, staging
from tests.spark import mapped

pytestmark = pytest.mark.skipif(malloc._library() is None, reason="no glibc: nothing is bounded")


@pytest.fixture
def root(tmp_path: Path) -> str:
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "vector(float32, 2)"}, primary_key="id")
        table.upsert({"id": 1, "v": [1, 2]})
    return str(tmp_path / "db")


def work_of(name: str, root: str) -> mapped.Work:
    with st.connect(root, background=False) as db:
        if name == "reading":
            return mapped.reading(root)
        if name == "writing":
            options = WriteOptions.parse({"uri": root, "table": "t"})
            given = to_spark(db["t"].schema)
            return mapped.writing(staging.plan(db, options, given, None, is_overwrite=False))
        with db.snapshot() as snapshot:
            assert isinstance(snapshot, LocalSnapshot)
            place = (*snapshot.place(), "t", snapshot.seq)
    return mapped.searching(NearestRows(place, "v", {"k": 1}, mapped.NUMBER))


def on_a_new_worker(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, work: mapped.Work
) -> int:
    """Run `work` in a process that has run nothing before: Spark shares them by environment."""
    monkeypatch.setitem(spark.sparkContext.environment, "SILTSTONE_TEST", name)
    rows = spark.range(0, 1, 1, 1).mapInArrow(work, mapped.NUMBER).collect()
    return rows[0]["mapped"]


def test_a_worker_keeps_freed_memory_unless_it_is_told(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert on_a_new_worker(spark, monkeypatch, "nothing", mapped.nothing()) == 0


@pytest.mark.parametrize("name", ["reading", "writing", "searching"])
def test_a_worker_gives_freed_memory_back_before_its_first_row(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, root: str, name: str
) -> None:
    assert on_a_new_worker(spark, monkeypatch, name, work_of(name, root)) > 8 * mapped.MIB


def test_a_worker_of_maintenance_gives_freed_memory_back(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    monkeypatch.setitem(spark.sparkContext.environment, "SILTSTONE_TEST", "maintenance")
    task = mapped.Measured(root)
    found = maintenance._spread(spark, root, "measured", [task])  # pyright: ignore[reportPrivateUsage]
    assert next(iter(found)) > 8 * mapped.MIB
