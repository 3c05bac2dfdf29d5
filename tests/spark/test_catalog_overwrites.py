"""Reads through the catalog count for overwrites by `format("siltstone")`, as `load()` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import register, snapshot

SCHEMA = {"id": "int64", "n": "int64"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("a.t", SCHEMA, "id").upsert([{"id": n, "n": 1} for n in range(4)])
    return tmp_path / "s"


def _catalog(spark: SparkSession, path: Path) -> str:
    name = f"overwritten_{abs(hash(str(path)))}"
    register(spark, stores={name: path})
    return name


def _commit(path: Path) -> None:
    with st.connect(path, background=False) as db:
        db["a.t"].upsert([{"id": 1, "n": 100}])


def _overwrite(frame: DataFrame, path: Path) -> None:
    writing = frame.write.format("siltstone").option("uri", str(path)).option("table", "a.t")
    writing.mode("overwrite").save()


def _values(path: Path) -> dict[int, int]:
    with st.connect(path, read_only=True) as db:
        return {row["id"]: row["n"] for row in db["a.t"].scan().read_all().to_pylist()}


def _plain(spark: SparkSession, name: str, path: Path) -> DataFrame:
    return spark.table(f"{name}.a.t").selectExpr("id", "n + 1 AS n")


def _counted(spark: SparkSession, name: str, path: Path) -> DataFrame:
    rows = spark.sql(f"SELECT count(*) AS n FROM {name}.a.t").collect()[0]["n"]
    return spark.range(rows).selectExpr("id", "id AS n")


def _limited(spark: SparkSession, name: str, path: Path) -> DataFrame:
    rows = spark.table(f"{name}.a.t").limit(9).collect()
    return spark.createDataFrame(rows, "id bigint, n bigint")


def _of_snapshot(spark: SparkSession, name: str, path: Path) -> DataFrame:
    with snapshot(spark, path) as shop:
        return spark.createDataFrame(shop["a.t"].collect(), "id bigint, n bigint")


READS = [_plain, _counted, _limited, _of_snapshot]


@pytest.mark.parametrize("read", READS)
def test_an_overwrite_conflicts_with_a_commit_after_the_read_through_the_catalog(
    spark: SparkSession,
    path: Path,
    read: Callable[[SparkSession, str, Path], DataFrame],
) -> None:
    frame = read(spark, _catalog(spark, path), path)
    frame.collect()
    _commit(path)
    with pytest.raises(PySparkException, match="an overwrite would lose that"):
        _overwrite(frame, path)
    assert _values(path)[1] == 100


@pytest.mark.parametrize("read", READS)
def test_an_overwrite_after_the_read_through_the_catalog_passes_without_other_commits(
    spark: SparkSession,
    path: Path,
    read: Callable[[SparkSession, str, Path], DataFrame],
) -> None:
    name = _catalog(spark, path)
    for _ in range(2):  # the second one reads what the first one wrote
        _overwrite(read(spark, name, path), path)
    assert len(_values(path)) == 4


def test_a_frame_of_the_catalog_that_is_used_again_after_an_overwrite_is_as_old_as_it_is(
    spark: SparkSession, path: Path
) -> None:
    name = _catalog(spark, path)
    frame = _plain(spark, name, path)
    _overwrite(frame, path)
    _commit(path)
    frame.collect()
    with pytest.raises(PySparkException, match="an overwrite would lose that"):
        _overwrite(frame, path)
    assert _values(path)[1] == 100


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {0} WHERE id = 3",
        "DELETE FROM {0} WHERE id % 4 = 3",
        "UPDATE {0} SET n = 3 WHERE id % 4 = 3",
        "TRUNCATE TABLE {0}",
        "ALTER TABLE {0} ADD COLUMN z INT",
        "INSERT INTO {0} (id, n) VALUES (70, 1)",
        "INSERT OVERWRITE {0} SELECT 71, 1",
        "CALL {1}.system.rollback_to('a.t', 2)",
    ],
)
def test_an_overwrite_does_not_conflict_with_statements_of_its_own_application(
    spark: SparkSession, path: Path, statement: str
) -> None:
    name = _catalog(spark, path)
    spark.table(f"{name}.a.t").collect()
    spark.sql(statement.format(f"{name}.a.t", name))
    spark.sql(f"INSERT OVERWRITE {name}.a.t BY NAME SELECT 8L id, 5L AS n")
    assert _values(path) == {8: 5}
