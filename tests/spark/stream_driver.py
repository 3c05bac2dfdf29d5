"""A driver of its own, with a stream that is killed at a step of a batch, JVM and all.

planned      before a task has staged
staged       before the commit
committed    after our commit, before Spark's log of commits
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from siltstone.spark import session
from siltstone.spark.context.options import SinkOptions
from siltstone.spark.context.workers import Sealed, sealed
from siltstone.spark.sessions.source import SiltstoneSource
from siltstone.spark.writes.writer import PieceWriter, Sink, SinkWritten
from tests.children import paths_with_pandas

STEPS = ("planned", "staged", "committed")
SHORT_LIVED = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
}
_KILL, _ROOT = "TESTED_KILL", Path(__file__).parent.parent.parent


def kill_at(step: str, batch: int) -> None:
    """Kill the driver with its JVM, and this process, if it is time."""
    wanted, number, group = os.environ[_KILL].split(":")
    if step == wanted and batch == int(number):
        os.killpg(int(group), signal.SIGKILL)
        os._exit(1)


class KillingPieceWriter(PieceWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkWritten:
        context = TaskContext.get()
        assert context is not None
        kill_at("planned", int(context.getLocalProperty("streaming.sql.batchId") or -1))
        return super().write(iterator)


class KillingSink(Sink):
    def __reduce__(self) -> Sealed:
        return sealed(KillingPieceWriter, *self.planned())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        kill_at("staged", batchId)
        super().commit(messages, batchId)
        kill_at("committed", batchId)


class KillingSource(SiltstoneSource):
    @classmethod
    def name(cls) -> str:
        return "killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KillingSink:  # noqa: N802 - as above
        options = SinkOptions.parse(self.options)
        first = self._seq or 0
        return KillingSink(options, schema, is_overwrite=overwrite, first_commit=first)


def changes(spark: SparkSession, uri: Path, **options: object) -> DataFrame:
    """Return the changes of `t` as a stream, with the columns of the table `log`."""
    stream = spark.readStream.format("siltstone").option("uri", str(uri)).option("table", "t")
    for name, value in {"startingSeq": "earliest", **options}.items():
        stream = stream.option(name, str(value))
    return stream.load().selectExpr("_seq AS seq", "_op AS op", "id", "v")


def follow(spark: SparkSession, root: Path, name: str) -> None:
    """Write what there is of the changes in `root`/a to the table `log` in `root`/b."""
    query = (
        changes(spark, root / "a", maxRowsPerTrigger=10)
        .writeStream.format(name)
        .option("uri", str(root / "b"))
        .option("table", "log")
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def follow_by_catalog(spark: SparkSession, root: Path) -> None:
    """Do as `follow` does, with the stores as the catalogs `a` and `b`."""
    stream = spark.readStream.option("maxRowsPerTrigger", 10).table("a.t.changes")
    query = (
        stream.selectExpr("_seq AS seq", "_op AS op", "id", "v")
        .writeStream.option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .toTable("b.log")
    )
    query.awaitTermination()


def stores_of(root: Path) -> dict[str, Path]:
    """Return the stores of `follow_by_catalog`."""
    return {"a": root / "a", "b": root / "b"}


def run_killed(root: Path, step: str, batch: int, way: str = "main") -> int:
    """Run a driver that is killed; return how it ended. `way`: `main` or `main_by_catalog`."""
    command = [sys.executable, "-c", f"from tests.spark import stream_driver as it; it.{way}()"]
    environment = {**os.environ, "PYTHONPATH": with_tests(), _KILL: f"{step}:{batch}"}
    return subprocess.run(
        [*command, str(root)],
        cwd=root,
        env=environment,
        start_new_session=True,
        timeout=600,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ).returncode


def with_tests() -> str:
    """Return where Python looks for modules: in these tests first, and for pandas where it is."""
    return os.pathsep.join([str(_ROOT), *paths_with_pandas()])


def main() -> None:
    """Be that driver."""
    os.environ[_KILL] += f":{os.getpgid(0)}"
    spark = session(SHORT_LIVED, master="local[1]")
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(KillingSource)
    follow(spark, Path(sys.argv[1]), "killing")


def main_by_catalog() -> None:
    """Be that driver, through catalogs: their Python process kills it."""
    from tests.spark import killing_daemon

    os.environ[_KILL] += f":{os.getpgid(0)}"
    root = Path(sys.argv[1])
    python = {"spark.siltstone.python": str(killing_daemon.executable(root))}
    spark = session({**SHORT_LIVED, **python}, master="local[1]", stores=stores_of(root))
    spark.sparkContext.setLogLevel("OFF")
    follow_by_catalog(spark, root)
