"""Many tasks, and those that Spark ends early, leave nothing in the Python process of a JVM."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

import siltstone as st
from siltstone.spark import register
from tests.nightly import by_day
from tests.spark.daemons import (
    answering_threads,
    daemons,
    descriptors,
    memory_files,
    resident_bytes,
    threads,
)

ROWS = 400_000
SCANS = 25
"""Of these consists a job; each has at least one task for the table of few rows."""
TASKS = by_day(500, 10_000)
WARM_UP = by_day(200, 2_000)
CANCELS = by_day(3, 60)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    path = tmp_path_factory.mktemp("tasks") / "shop"
    with st.connect(path, background=False) as db:
        large = pa.table({"id": range(ROWS), "s": [f"text {n} " * 5 for n in range(ROWS)]})
        db.create_table("large", large.schema).append(large)
        lists = large.append_column("l", pa.array([[n] for n in range(ROWS)], pa.list_(pa.int32())))
        db.create_table("lists", lists.schema).append(lists)
        few = db.create_table("few", {"id": "int64", "l": "list<int32>"}, primary_key="id")
        few.upsert([{"id": n, "l": [n]} for n in range(10)])
        db.checkpoint()
        db.merge()
        few.upsert([{"id": n, "l": [n]} for n in range(5, 15)])
        db.create_table("keyed", {"id": "int64", "s": "string"}, "id")
        db.create_table("narrow", {"id": "int64", "n": "int64"}, "id")
    return register(spark.newSession(), stores={"shop": path})


def _daemon(shop: SparkSession) -> int:
    assert shop.sql("SELECT max(id) FROM shop.large").collect()[0][0] == ROWS - 1
    (found,) = daemons()
    return found


def _eventually(is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + 60
    while not is_so() and time.monotonic() < until:
        time.sleep(0.1)
    return is_so()


@contextmanager
def nothing_left(daemon: int) -> Iterator[None]:
    """Check that a process has no more threads and memory than the connections that are kept."""
    before = held(daemon)
    yield
    assert _eventually(
        lambda: all(now <= then for now, then in zip(held(daemon), before, strict=True))
    ), f"{before}, then {held(daemon)}"


def held(daemon: int) -> tuple[int, int, int]:
    """Return how many memory files, threads and descriptors a process has."""
    return memory_files(daemon), answering_threads(daemon), descriptors(daemon)


def slow(frame: DataFrame) -> DataFrame:
    def slow(batches):
        for batch in batches:
            time.sleep(0.2)
            yield batch

    return frame.mapInArrow(slow, frame.schema)


def is_cancelled(shop: SparkSession, run: Callable[[], object], after_s: float) -> bool:
    """Run something, and cancel its job as soon as there is one, but not before `after_s`."""
    context, ended = shop.sparkContext, threading.Event()

    def cancel() -> None:
        ended.wait(after_s)
        while not ended.wait(0.1):
            context.cancelJobGroup("cancelled")

    cancelling = threading.Thread(target=cancel)
    context.setJobGroup("cancelled", "reads", interruptOnCancel=True)
    cancelling.start()
    try:
        run()
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
        return "cancelled" in str(error)
    else:
        return False
    finally:
        ended.set()
        cancelling.join()
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.interruptOnCancel", None)


def test_tasks_that_are_cancelled_at_any_moment_leave_nothing(shop: SparkSession) -> None:
    """Also not in the moment of their first word: the process serves others, too."""
    wide = shop.sql("SELECT * FROM shop.large")
    nested = shop.sql(" UNION ALL ".join(["SELECT * FROM shop.few"] * SCANS))
    for frame in (wide, nested):  # what these need is kept
        frame.write.format("noop").mode("overwrite").save()
    daemon, dice = _daemon(shop), random.Random(7)
    with nothing_left(daemon):
        for frame in (wide, nested) * CANCELS:
            read = slow(frame).write.format("noop").mode("overwrite")
            assert is_cancelled(shop, read.save, dice.random())
    assert daemons() == [daemon]
    assert wide.count() == ROWS


def _insert(shop: SparkSession) -> None:
    slow(shop.range(0, 600_000, 1, 2).selectExpr("id", "'x' s")).writeTo("shop.keyed").append()


def _merge(shop: SparkSession) -> None:
    slow(shop.sql("SELECT id, s FROM shop.large")).createOrReplaceTempView("source")
    shop.sql(
        "MERGE INTO shop.keyed USING source ON keyed.id = source.id"
        " WHEN MATCHED AND keyed.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET *"
        " WHEN NOT MATCHED THEN INSERT *"
    )


def _update(shop: SparkSession) -> None:
    shop.sql("UPDATE shop.keyed SET s = held(s) WHERE id % 2 = 0")


@pytest.mark.parametrize("write", [_insert, _merge, _update])
def test_a_write_that_is_cancelled_at_any_moment_changes_and_leaves_nothing(
    shop: SparkSession, write: Callable[[SparkSession], None]
) -> None:
    shop.udf.register("held", functions.udf(_held, "string", useArrow=False))
    _merge_few(shop)  # what such a statement needs is kept
    daemon, dice = _daemon(shop), random.Random(11)
    before = shop.table("shop.keyed").count(), _seq(shop)
    with nothing_left(daemon):
        for _ in range(2 * CANCELS):
            assert is_cancelled(shop, lambda: write(shop), 2 * dice.random())
    assert (shop.table("shop.keyed").count(), _seq(shop)) == before
    assert daemons() == [daemon]
    _merge_few(shop)
    assert _seq(shop) == before[1] + 1


def _held(text: str) -> str:
    time.sleep(0.005)
    return text


def _merge_few(shop: SparkSession) -> None:
    shop.sql(
        "MERGE INTO shop.keyed USING (SELECT * FROM shop.large WHERE id < 3000) x"
        " ON keyed.id = x.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _seq(shop: SparkSession) -> int:
    return shop.sql("SELECT max(seq) FROM shop.system.log").collect()[0][0]


def test_a_limit_that_ends_reads_early_leaves_nothing(shop: SparkSession) -> None:
    daemon = _daemon(shop)
    with nothing_left(daemon):
        for _ in range(10):
            assert len(shop.sql("SELECT * FROM shop.large WHERE id % 2 = 1 LIMIT 3").collect()) == 3
    assert daemons() == [daemon]


@pytest.mark.parametrize("columns", ["s", "s, l[0]"])
def test_a_thread_that_still_reads_when_its_task_is_over_harms_nothing(
    shop: SparkSession, columns: str
) -> None:
    """Spark feeds a script from a thread of its own, and does not wait for it."""
    fed = f"SELECT TRANSFORM({columns}) USING 'cat' AS (s STRING) FROM shop.lists"
    daemon = _daemon(shop)
    with nothing_left(daemon):
        for _ in range(by_day(3, 30)):
            assert len(shop.sql(f"SELECT * FROM ({fed}) LIMIT 2").collect()) == 2
    assert shop.sql(f"SELECT count(*) FROM ({fed})").collect()[0][0] == ROWS
    assert daemons() == [daemon]


def test_many_tasks_leave_the_memory_as_it_was(shop: SparkSession) -> None:
    unions = [
        " UNION ALL ".join([f"SELECT {columns} FROM shop.few"] * SCANS)
        for columns in ("id", "id, l")
    ]

    def run(tasks: int) -> None:
        for union in unions * (tasks // (SCANS * len(unions))):
            found = shop.sql(union).agg({"id": "count"}).collect()
            assert found[0][0] == 15 * SCANS

    assert shop.sql(unions[1]).rdd.getNumPartitions() >= SCANS
    run(WARM_UP)
    shop._jvm.System.gc()
    (daemon,) = daemons()
    before = resident_bytes(daemon), descriptors(daemon), threads(daemon)
    run(TASKS)
    shop._jvm.System.gc()
    assert _eventually(lambda: descriptors(daemon) <= before[1] and threads(daemon) <= before[2])
    assert daemons() == [daemon]
    assert resident_bytes(daemon) < 1.1 * before[0]


def test_many_tasks_that_write_leave_the_memory_as_it_was(shop: SparkSession) -> None:
    """Each statement writes the same keys from many tasks: with few rows, or none."""
    written = by_day(50, 1_000)

    def run(tasks: int) -> None:
        for turn in range(tasks // written):
            shop.sql(
                "INSERT INTO shop.narrow WITH (op = 'upsert', missing = 'null')"
                f" SELECT id, {turn} FROM range(0, {2 * written}, 1, {written})"
            )

    run(WARM_UP)
    shop._jvm.System.gc()
    (daemon,) = daemons()
    before = resident_bytes(daemon)
    with nothing_left(daemon):
        run(TASKS)
        shop._jvm.System.gc()
    assert daemons() == [daemon]
    assert resident_bytes(daemon) < 1.1 * before
    assert shop.table("shop.narrow").count() == 2 * written
