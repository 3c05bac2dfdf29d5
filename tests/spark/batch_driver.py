"""A driver that is killed at a point of its choice, JVM and all; the rows and the token are always
the same.

WAY is "write" (the data source) or "transaction".

planned      the job is planned, no task has staged
staging      some tasks have staged
staged       all have, nothing is committed
committed    after our commit, before Spark hears of it
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from siltstone.spark import session, transaction
from siltstone.spark.context.options import WriteOptions
from siltstone.spark.sessions.source import SiltstoneSource
from siltstone.spark.writes.writer import BatchWriter, BatchWritten
from tests.spark.stream_driver import SHORT_LIVED, with_tests

TOKEN = ("nightly", 1)
ROWS = 90
_KILL, _ROOT = "TESTED_BATCH_KILL", Path(__file__).parent.parent.parent


def kill_at(point: str) -> None:
    """Kill the driver with its JVM, and this process, if it is the point."""
    wanted, group = os.environ[_KILL].split(":")
    if point == wanted:
        os.killpg(int(group), signal.SIGKILL)
        os._exit(1)


class KillingWriter(BatchWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchWritten:
        kill_at("planned")
        return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        kill_at("staged")
        super().commit(messages)
        kill_at("committed")


class KillingSource(SiltstoneSource):
    @classmethod
    def name(cls) -> str:
        return "killing"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = WriteOptions.parse(self.options)
        return KillingWriter.plan(options, schema, is_overwrite=overwrite)


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 3).selectExpr("id", "concat('row ', id) name", "0.5d as v")


def killing(frame: DataFrame) -> DataFrame:
    """The same rows, from tasks of which the last kills the driver."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if ROWS - 1 in batch.column(0).to_pylist():
                kill_at("staging")
            yield batch

    return frame.mapInArrow(work, frame.schema)


def apply(spark: SparkSession, store: Path, way: str, name: str = "siltstone") -> None:
    frame = rows(spark) if name == "siltstone" else killing(rows(spark))
    if way == "write":
        writer = frame.write.format(name).mode("append")
        writer.options(uri=str(store), table="t", token=f"{TOKEN[0]}:{TOKEN[1]}").save()
        return
    with transaction(store, token=TOKEN) as tx:
        tx.write(frame, "t")
        if name != "siltstone":
            kill_at("staged")
    if name != "siltstone":
        kill_at("committed")


def run_killed(store: Path, way: str, point: str) -> subprocess.CompletedProcess[str]:
    """Run a driver that is killed; return how it ended."""
    command = [sys.executable, "-c", "from tests.spark import batch_driver as it; it.main()"]
    return subprocess.run(
        [*command, str(store), way],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": with_tests(), _KILL: point, "PYTHONWARNINGS": "ignore"},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def main() -> None:
    """Be that driver."""
    os.environ[_KILL] += f":{os.getpgid(0)}"
    spark = session(SHORT_LIVED, master="local[1]")
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(KillingSource)
    apply(spark, Path(sys.argv[1]), sys.argv[2], "killing")
