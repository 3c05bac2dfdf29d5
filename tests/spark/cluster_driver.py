"""A driver on a real cluster: `python -m tests.spark.cluster_driver MASTER STORE`.

It writes a table in three jobs, each of which loses something on the way, then optimizes and merges
it; what it reads after each step goes into the file STORE.<step>, as Parquet.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import merge, optimize, session, snapshot
from tests.spark import faults
from tests.spark.conftest import SETTINGS

ROWS = 400
STEPS = ("killed", "failing", "full", "optimized", "merged")
SMALL = {"spark.executor.memory": "512m", "spark.task.maxFailures": "4"}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def killing(frame: DataFrame) -> DataFrame:
    """The same rows; the first attempt of one task kills its executor when its rows are through."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.partitionId() == 1 and task.attemptNumber() == 0:
            executor = parent_of(os.getppid())  # worker, daemon, executor
            os.kill(executor, signal.SIGKILL)

    return frame.mapInArrow(work, frame.schema)


def rows(spark: SparkSession, step: str) -> DataFrame:
    """Each step writes over a quarter of the rows of the one before it."""
    first = STEPS.index(step) * ROWS * 3 // 4
    text = f"concat('{step} ', id) name"
    return spark.range(first, first + ROWS, 1, 4).selectExpr("id", text, "0.5d as v")


def expected(step: str) -> list[dict[str, object]]:
    """Return what the table holds after a step, in the order of its keys."""
    found: dict[int, dict[str, object]] = {}
    for each in STEPS[: min(STEPS.index(step), 2) + 1]:
        first = STEPS.index(each) * ROWS * 3 // 4
        found |= {n: {"id": n, "name": f"{each} {n}", "v": 0.5} for n in range(first, first + ROWS)}
    return [found[n] for n in sorted(found)]


def save(frame: DataFrame, source: str, store: str) -> None:
    frame.write.format(source).mode("append").options(uri=store, table="t").save()


def checkpoint(store: str) -> None:
    with st.connect(store, background=False) as db:
        db.checkpoint()


def main(master: str, store: str) -> None:
    spark = session({**SETTINGS, **SMALL}, master=master)
    spark.sparkContext.setLogLevel("FATAL")
    faults.register(spark)

    def read(step: str) -> None:
        with snapshot(spark, store) as shop:
            pq.write_table(shop["t"].toArrow(), f"{store}.{step}")

    save(killing(rows(spark, "killed")), "siltstone", store)
    read("killed")
    for step in ("failing", "full"):
        save(rows(spark, step), step, store)
        read(step)
        checkpoint(store)
    assert isinstance(optimize(spark, store), st.Optimized)
    read("optimized")
    assert isinstance(merge(spark, store), st.Merged)
    read("merged")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
