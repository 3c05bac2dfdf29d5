"""Pipeline: what Spark does to the store: one bulk load, then a stream of refresh sets.

    set-00000.parquet, set-00001.parquet, ... ─▶ readStream ─▶ foreachBatch ─▶ one commit each

A commit has both refresh functions, orders and lineitems alike, and the number of its batch as a
token: what Spark tries again, after a stop or a kill, is applied once.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from examples.tpch import data
from examples.tpch.refresh import RefreshSets
from siltstone.errors import BusyError
from siltstone.spark import session, transaction
from siltstone.store import Store

APP = "tpch-refresh"
CORES = 2
WAIT_S = 180.0
POLL_S = 0.05
SETS_AHEAD = 3  # that wait to be applied
ERROR_CHARS_MAX = 300
# A small JVM is enough up to here: what Spark joins and groups fits into it.
SCALE_OF_SMALL_MEMORY = 0.2


def start_spark(scratch: Path, scale: float) -> SparkSession:
    """Return a Spark of two cores in this machine, quiet, with its files in `scratch`."""
    # Of pandas 3, of which nothing here is used.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    spark = session(
        {
            "spark.driver.memory": "1g" if scale <= SCALE_OF_SMALL_MEMORY else "3g",
            "spark.sql.shuffle.partitions": str(CORES),
            "spark.scheduler.mode": "FAIR",  # between pools: a small batch waits for no long query
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch / "spark"),
            "spark.sql.streaming.stopTimeout": "60s",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        },
        master=f"local[{CORES}]",
        app_name="siltstone demo",
    )
    spark.sparkContext.setLogLevel("FATAL")  # what fails is raised here, and said once
    return spark


def use_pool(spark: SparkSession, name: str) -> None:
    """Let what this thread runs on Spark, and the streams that it starts, share a pool."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)


def load(spark: SparkSession, store: Store, files: Mapping[str, Path]) -> dict[str, int]:
    """Create the eight tables and load all of them in one commit; return the rows of each."""
    with store.transaction() as tx:
        for name, key in data.KEYS.items():
            tx.create_table(name, data.schema(files[name]), key)
    with transaction(store, token=("tpch-load", 0)) as tx:
        for name in data.KEYS:
            tx.write(spark.read.parquet(str(files[name])), name, op="insert")
    return {name: pq.read_metadata(file).num_rows for name, file in files.items()}


class RefreshStream:
    """A structured stream that applies the refresh sets of a directory, each in one commit.

    One thread feeds, starts and stops it; the counts may be read by any.
    """

    def __init__(self, spark: SparkSession, store: Store, sets: RefreshSets, folder: Path) -> None:
        self._spark, self._store, self._sets = spark, store, sets
        self._landing, self._checkpoint = folder / "landing", folder / "checkpoint"
        self._landing.mkdir(parents=True)
        self._query: StreamingQuery | None = None
        self.put_count = 0
        self.tries = self.restarts = 0
        self._is_repeated = False
        self.applied: set[int] = set()
        self.latencies_s: list[float] = []

    @property
    def wants_more(self) -> bool:
        """Whether there is a next set, and not enough of them wait to be applied."""
        return self.put_count < min(len(self._sets), len(self.applied) + SETS_AHEAD)

    def put(self) -> None:
        """Land the next refresh set: a whole file, or none."""
        name = f"set-{self.put_count:05}.parquet"
        hidden = self._landing.with_name(name)
        pq.write_table(self._sets[self.put_count], hidden)
        hidden.rename(self._landing / name)
        self.put_count += 1

    def start(self) -> None:
        """Start; again: go on where the checkpoint of the stream says that it stopped."""
        if not self.put_count:
            self.put()  # Spark takes the columns from a file
        use_pool(self._spark, "stream")
        schema = self._spark.read.parquet(str(self._landing)).schema
        self._query = (
            self._spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._landing))
            .writeStream.foreachBatch(self._apply)
            .option("checkpointLocation", str(self._checkpoint))
            .start()
        )

    def restart(self) -> None:
        """Stop in full flight and start again; the next batch is applied twice.

        So does Spark where it is killed between our commit and its own note of it: the batch runs
        again, and its token makes it nothing.
        """
        self._running().stop()
        self.restarts += 1
        self._is_repeated = True
        if self.put_count < len(self._sets):
            self.put()
        self.start()

    def drain(self) -> None:
        """Wait until all that landed is applied; stop."""
        deadline = time.monotonic() + WAIT_S
        while len(self.applied) < self.put_count:
            self.require_alive()
            if time.monotonic() > deadline:
                raise BusyError(f"the refresh stream did not get on in {WAIT_S:.0f} s")
            time.sleep(POLL_S)
        self._running().stop()

    def require_alive(self) -> None:
        """Raise what broke the stream off, if anything did."""
        error = self._running().exception()
        if error is not None:
            raise error

    def _running(self) -> StreamingQuery:
        assert self._query is not None, "start it first"
        return self._query

    def violations(self) -> list[str]:
        """Return which sets are not in the store as a whole, once each."""
        with self._store.snapshot() as now:
            keys = now["orders"].to_arrow(["o_orderkey"])["o_orderkey"].to_numpy()
        wrong: list[str] = []
        for number in range(self.put_count):
            missing = np.setdiff1d(self._sets.new_keys(number), keys)
            left = np.intersect1d(self._sets.old_keys(number), keys)
            if number not in self.applied or len(missing) or len(left):
                wrong.append(f"set {number}: {len(missing)} not inserted, {len(left)} not deleted")
        return wrong

    def _apply(self, batch: DataFrame, number: int) -> None:
        times, self._is_repeated = 1 + self._is_repeated, False
        try:
            for _ in range(times):
                self.tries += 1
                self._refresh(batch, number)
        except Exception as error:  # noqa: BLE001 - raised again, in short
            # Spark searches the text of what a batch raises with a regular expression: of a long
            # one, as of a batch that is stopped half-way, its stack overflows.
            text = str(error)[:ERROR_CHARS_MAX]
            raise RuntimeError(f"{type(error).__name__}: {text}") from None
        self.applied.add(number)

    def _refresh(self, batch: DataFrame, number: int) -> None:
        began = time.perf_counter()
        new, old = (batch.where(f.col("op") == op) for op in ("insert", "delete"))
        keys = [f"line.{column}" for column in data.KEYS["lineitem"]]
        with transaction(self._store, token=(APP, number)) as tx:
            tx.write(new.select("order.*"), "orders", op="insert")
            tx.write(_lines(new).select("line.*"), "lineitem", op="insert")
            tx.write(old.select(*data.KEYS["orders"]), "orders", op="delete")
            tx.write(_lines(old).select(*keys), "lineitem", op="delete")
        self.latencies_s.append(time.perf_counter() - began)


def _lines(orders: DataFrame) -> DataFrame:
    return orders.select(f.explode("lines").alias("line"))
