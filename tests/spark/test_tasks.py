"""A task that fails, finds no room or runs twice: its rows are counted once, or not at all.

Each task has more rows than it may report, so all are in files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from tests.engine.seams import until
from tests.spark import faults
from tests.spark.stores import SCHEMA

OLD = {0: "old", 500: "old"}
WIDTH = 40_000  # of 30 rows in each task


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


def rows(spark: SparkSession, first: int, last: int) -> DataFrame:
    name = f"rpad(concat('row ', id), {WIDTH}, ' ') name"
    return spark.range(first, last, 1, 3).selectExpr("id", name, "0.5d v")


def save(frame: DataFrame, path: Path, source: str) -> None:
    frame.write.format(source).mode("append").options(uri=str(path), table="t").save()


def names(path: Path) -> dict[int, str]:
    with st.connect(path, read_only=True) as db:
        return {row["id"]: row["name"].rstrip() for row in db["t"].to_arrow().to_pylist()}


def staged(path: Path) -> dict[str, set[str]]:
    """The files of rows in each folder of a job, by the job's name."""
    found: dict[str, set[str]] = {}
    for file in path.glob("tables/*/.attached/*/data/*.lance"):
        found.setdefault(file.parent.parent.name, set()).add(str(file.relative_to(path)))
    return found


def vacuumed(path: Path) -> set[str]:
    with st.connect(path, background=False, retention="0s") as db:
        # a record after the one with the job's rows
        db["t"].upsert({"id": 500, "name": "old"}, missing="null")
        db.checkpoint()
        found = db.vacuum(dry_run=False, grace_s=0)
        return {file.path for file in found.files if file.path.endswith(".lance")}


def running_tasks(spark: SparkSession) -> int:
    infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return sum(info.numRunningTasks() for info in infos)


def jobs_of(files: set[str]) -> set[str]:
    return {Path(file).parent.parent.name for file in files}


def test_rows_that_two_attempts_have_staged_are_counted_once(
    spark: SparkSession, path: Path
) -> None:
    save(rows(spark, 0, 90), path, "repeated")
    wanted = OLD | {n: f"row {n}" for n in range(90)}
    assert names(path) == wanted
    ((job, files),) = staged(path).items()
    assert len(files) == 6
    with st.connect(path, background=False) as db:
        assert [entry.rows for entry in db.log() if entry.rows] == [90, 2]
    assert jobs_of(files) == {job}
    assert files <= vacuumed(path)  # what was attached is in the history by now
    assert staged(path) == {}
    assert names(path) == wanted


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("failing", "RuntimeError: the executor has a fever"),
        ("full", r"UnavailableError: .*store.tables.* the file system refuses: .*File too large"),
        ("unseen", r"UnavailableError: the executor on .* sees no store at /nowhere; driver and"),
    ],
)
def test_a_task_that_cannot_go_on_fails_the_job_in_one_sentence_and_changes_nothing(
    spark: SparkSession, path: Path, source: str, said: str
) -> None:
    with pytest.raises(Exception, match=said):  # tasks have one attempt in this session
        save(rows(spark, 0, 90), path, source)
    assert names(path) == OLD
    until(lambda: running_tasks(spark) == 0)  # Spark lets the other tasks of a failed job write on
    left = {file for files in staged(path).values() for file in files}
    assert len(jobs_of(left)) <= 1
    save(rows(spark, 0, 90), path, "siltstone")  # nothing of it is in the way
    wanted = OLD | {n: f"row {n}" for n in range(90)}
    assert names(path) == wanted
    assert left <= vacuumed(path)
    assert staged(path) == {}
    assert names(path) == wanted
