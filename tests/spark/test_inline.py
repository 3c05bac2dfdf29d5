"""Few rows of a frame travel in what its tasks report, and its commit needs no files of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.engine.write.bulk import INLINE_BYTES_MAX
from siltstone.spark import transaction
from siltstone.spark.writes import staging
from tests.spark import faults, stream_driver
from tests.spark.stores import SCHEMA

OLD = {0: "old", 500: "old"}
WIDE = 4_000
Make = Callable[[SparkSession, int, int, int], DataFrame]


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A store whose table has rows: what is staged for it lies in a folder of the job."""
    faults.register(spark)
    with st.connect(tmp_path / "store", background=False, retention="0s") as db:
        db.create_table("t", SCHEMA, primary_key="id").insert(
            [{"id": n, "name": name} for n, name in OLD.items()]
        )
        db.checkpoint()
    yield tmp_path / "store"
    with st.connect(tmp_path / "store", background=False) as db:
        assert db.verify(deep=True).is_sound


def few(spark: SparkSession, first: int, last: int, tasks: int = 3) -> DataFrame:
    return spark.range(first, last, 1, tasks).selectExpr("id", "concat('row ', id) name", "0.5d v")


def many(spark: SparkSession, first: int, last: int, tasks: int = 1) -> DataFrame:
    """Rows of 4 kB: 300 of them are more than a task may report."""
    name = f"rpad(concat('row ', id), {WIDE}, ' ') name"
    return spark.range(first, last, 1, tasks).selectExpr("id", name, "0.5d v")


def save(frame: DataFrame, path: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("siltstone").mode(mode).options(uri=str(path), table="t", **options).save()


def names(path: Path) -> dict[int, str]:
    with st.connect(path, read_only=True) as db:
        return {row["id"]: row["name"].rstrip() for row in db["t"].to_arrow().to_pylist()}


def commits(path: Path) -> list[int]:
    """The rows of each commit since the first one, oldest first."""
    with st.connect(path, read_only=True) as db:
        return [entry.rows for entry in db.log() if entry.rows][-2::-1]


def staged(path: Path) -> list[Path]:
    return [*path.glob("tables/*/.attached/*/data/*"), *path.glob("tables/*/base/data/*")]


def test_small_frames_are_written_deleted_and_replaced_without_files(
    spark: SparkSession, path: Path
) -> None:
    before = staged(path)
    save(few(spark, 0, 90), path)
    save(few(spark, 10, 600), path, op="delete")
    assert names(path) == {n: f"row {n}" for n in range(10)}
    save(few(spark, 5, 15), path, "overwrite")
    with transaction(path) as tx:
        assert tx.write(few(spark, 20, 25), "t") == 5
    assert names(path) == {n: f"row {n}" for n in [*range(5, 15), *range(20, 25)]}
    assert commits(path) == [90, 590, 10, 5]
    assert staged(path) == before
    assert [*path.glob("tables/*/.attached/*")] == []  # nor are there folders for them


def test_rows_that_two_attempts_report_are_counted_once(spark: SparkSession, path: Path) -> None:
    before = staged(path)
    frame = few(spark, 0, 90).write.format("repeated").mode("append")
    frame.options(uri=str(path), table="t").save()
    assert names(path) == OLD | {n: f"row {n}" for n in range(90)}
    assert commits(path) == [90]
    assert staged(path) == before


def test_more_rows_than_a_task_may_report_are_in_its_file(spark: SparkSession, path: Path) -> None:
    before = staged(path)
    save(many(spark, 0, 600, tasks=2), path)
    assert names(path) == OLD | {n: f"row {n}" for n in range(600)}
    assert len(staged(path)) == len(before) + 2


def test_rows_that_one_task_reports_and_another_has_in_a_file_are_one_commit(
    spark: SparkSession, path: Path
) -> None:
    before = staged(path)
    save(few(spark, 0, 20, 2).union(many(spark, 20, 400)).union(few(spark, 400, 420, 2)), path)
    assert names(path) == OLD | {n: f"row {n}" for n in range(420)}
    assert commits(path) == [420]
    # What came before the file, and what came after it: the order of the rows is as it was.
    assert len(staged(path)) == len(before) + 3


@pytest.mark.parametrize("makes", [(few, few), (few, many), (many, many)])
def test_equal_keys_are_refused_wherever_their_rows_are(
    spark: SparkSession, path: Path, makes: tuple[Make, Make]
) -> None:
    one, other = makes
    with pytest.raises(Exception, match=r"DuplicateKeyError: t\[399\] is twice among the rows"):
        save(one(spark, 0, 400, 1).union(other(spark, 399, 700, 1)), path)
    assert names(path) == OLD


def test_a_micro_batch_is_committed_once_and_without_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "a", background=False) as a:
        a.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        for n in range(3):
            a["t"].upsert([{"id": k, "v": n} for k in range(8)])
    with st.connect(tmp_path / "b", background=False) as b:
        columns = {"seq": "int64", "op": "string", "id": "int64", "v": "int64"}
        b.create_table("log", columns, primary_key=["seq", "id"])
    for _ in range(2):
        stream_driver.follow(spark, tmp_path, "siltstone")
    with st.connect(tmp_path / "b", background=False) as b:
        assert [entry.rows for entry in b.log() if entry.rows] == [8, 8, 8]
        assert b["log"].count() == 24
    assert staged(tmp_path / "b") == []


def test_what_a_thousand_tasks_report_fits_into_the_log() -> None:
    assert staging.inline_bytes_max(0) == 1 << 20
    assert sum(map(staging.inline_bytes_max, range(1000))) <= INLINE_BYTES_MAX
