"""A driver that is killed at a point of its choice: `python batch_driver.py STORE WAY POINT`.

WAY is "write" (the data source) or "transaction"; the rows and the token are always the same.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from siltstone.spark import session, transaction
from tests.spark.conftest import SETTINGS

TOKEN = ("nightly", 1)
ROWS = 90


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 3).selectExpr("id", "concat('row ', id) name", "0.5d as v")


def killing(frame: DataFrame, driver: int) -> DataFrame:
    """The same rows, from tasks of which the last kills the driver."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if ROWS - 1 in batch.column(0).to_pylist():
                os.kill(driver, signal.SIGKILL)
            yield batch

    return frame.mapInArrow(work, frame.schema)


def apply(spark: SparkSession, store: Path, way: str, point: str = "") -> None:
    frame = rows(spark)
    if point == "staging":
        frame = killing(frame, os.getpid())
    if way == "write":
        writer = frame.write.format("siltstone").mode("append")
        writer.options(uri=str(store), table="t", token=f"{TOKEN[0]}:{TOKEN[1]}").save()
    else:
        with transaction(store, token=TOKEN) as tx:
            tx.write(frame, "t")
            if point == "staged":
                os.kill(os.getpid(), signal.SIGKILL)
    if point == "committed":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    apply(session(SETTINGS, master="local[2]"), Path(sys.argv[1]), sys.argv[2], sys.argv[3])
