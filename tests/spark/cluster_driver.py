"""A driver on a real cluster: `python cluster_driver.py MASTER STORE`; prints what happened."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from siltstone.spark import session, snapshot
from tests.spark.conftest import SETTINGS

ROWS = 400


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


def main(master: str, store: str) -> None:
    spark = session({**SETTINGS, "spark.executor.memory": "512m"}, master=master)
    spark.sparkContext.setLogLevel("FATAL")
    frame = spark.range(0, ROWS, 1, 4).selectExpr("id", "concat('row ', id) name", "0.5d as v")
    killing(frame).write.format("siltstone").mode("append").options(uri=store, table="t").save()
    with snapshot(spark, store) as shop:
        sys.stdout.write(f"rows {shop['t'].count()}\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
