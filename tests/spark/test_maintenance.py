"""Merge and optimize on Spark: the rows are written by executors, the answers stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import merge, optimize

SCHEMA = {"id": "int64", "v": "int64"}


@pytest.fixture
def db(tmp_path: Path):
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as store:
        table = store.create_table("t", SCHEMA, primary_key="id")
        for turn in range(4):
            table.upsert([{"id": n, "v": turn} for n in range(turn * 10, 100)])
            store.checkpoint()
        yield store


def rows(table) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}


def test_a_merge_on_spark_beside_the_owner_changes_no_answer(spark: SparkSession, db) -> None:
    expected = rows(db["t"])
    found = merge(spark, db.path)
    assert isinstance(found, st.Merged)
    assert (found.tables, found.rows) == (("t",), 100)
    assert rows(db["t"]) == expected
    db["t"].upsert([{"id": n, "v": 9} for n in range(50, 60)])
    db["t"].delete(list(range(5)))
    db.checkpoint()
    expected = rows(db["t"])
    merge(spark, db.path, "t")
    db.merge()  # finds it done, and takes it over
    assert rows(db["t"]) == expected
    assert db.verify(deep=True).is_sound


def test_an_optimize_on_spark_makes_one_file_of_many(spark: SparkSession, db) -> None:
    expected = rows(db["t"])
    past = rows(db.snapshot(seq=3)["t"])
    found = optimize(spark, str(db.path), table="t")
    assert isinstance(found, st.Optimized)
    assert (found.files_before, found.files_after) == (4, 1)
    assert rows(db["t"]) == expected
    db.merge()
    assert rows(db["t"]) == expected
    assert rows(db.snapshot(seq=3)["t"]) == past


def test_maintenance_of_no_store_or_no_table_is_refused(spark: SparkSession, db, tmp_path) -> None:
    with pytest.raises(st.RequestError, match="no such directory"):
        merge(spark, tmp_path / "nowhere")
    with pytest.raises(st.TableNotFoundError, match="nope"):
        optimize(spark, db.path, "nope")
