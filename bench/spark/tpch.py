"""TPC-H: 22 queries as plain `spark.sql`, over a store, over it with fresh rows, and over Parquet.

Each peer has a Spark session of its own in one application, whose views are made once: of ours by
`snapshot(...).create_views()`, so frames of the catalog. The views of the clean store are planned
before 5 % of the rows of `orders` and `lineitem` are upserted again, with the values that they
have, and checkpointed; those of the fresh one afterwards. So all answer the same.

The reads are those of one table, `lineitem`, of the clean store and of Parquet.

Peers take turns query by query. The first round is cold: its seconds are kept apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import siltstone as st
from bench.spark.cpu import cpu_s
from bench.spark.tpch_queries import ALL
from bench.spark.workloads import OURS, PARQUET, Place, Seconds, read_all, rounds
from examples.tpch import data
from examples.tpch.queries import Rows, difference
from siltstone.spark import register, snapshot

FRESH = "siltstone with fresh rows"
FRESH_TABLES, FRESH_SHARE = ("orders", "lineitem"), 0.05
_BATCH_ROWS = 131_072
Sessions = dict[str, SparkSession]
READS = {
    "sum of one bigint": "SELECT sum(l_orderkey) FROM lineitem",
    "sum of one decimal": "SELECT sum(l_extendedprice) FROM lineitem",
    "max of one date": "SELECT max(l_shipdate) FROM lineitem",
    "max of one text": "SELECT max(l_comment) FROM lineitem",
    "count(*)": "SELECT count(*) FROM lineitem",
}
ALL_COLUMNS = "all columns"


def run(place: Place, scale: float) -> Seconds:
    """Return the seconds of each query by peer, and under "cold" those of the first round.

    Raises:
        RuntimeError: Two peers answered a query differently.
    """
    files = data.generate(place.folder / "tpch", scale)
    store = place.folder / "tpch-store"
    _load(store, files)
    with ExitStack() as stack:
        sessions = {OURS: _views(stack, place.spark, store)}
        sessions[PARQUET] = _parquet_views(place.spark, files)
        found = _reads(place, sessions)
        _freshen(store, files)
        sessions[FRESH] = _views(stack, place.spark, store)
        for name, text in ALL.items():
            _query(found, sessions, name, text, place.rounds)
    return found


def _reads(place: Place, sessions: Sessions) -> Seconds:
    """Return the seconds of each read by peer; those of its rounds alternate."""
    found: Seconds = {}
    for name, text in (READS | {ALL_COLUMNS: ""}).items():
        peers = {peer: partial(_read, spark, text) for peer, spark in sessions.items()}
        for peer, seconds in rounds(place, peers).items():
            found[f"{name}, {peer}"] = seconds
    return found


def _read(spark: SparkSession, text: str) -> None:
    if text:
        spark.sql(text).collect()
    else:
        read_all(spark.table("lineitem"))


def _load(store: Path, files: Mapping[str, Path]) -> None:
    with st.connect(store, background=False) as db:
        for name, key in data.KEYS.items():
            schema = data.schema(files[name])
            db.create_table(name, schema, key).upsert(_reader(files[name], schema))
        db.checkpoint()
        db.merge()


def _reader(file: Path, schema: pa.Schema) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for batch in pq.ParquetFile(file).iter_batches(_BATCH_ROWS):
            yield batch.cast(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _freshen(store: Path, files: Mapping[str, Path]) -> None:
    """Upsert some of the rows again, as they are, and checkpoint them."""
    random = np.random.default_rng(3)
    with st.connect(store, background=False) as db:
        for name in FRESH_TABLES:
            rows = pq.read_table(files[name], schema=data.schema(files[name]))
            chosen = random.choice(len(rows), max(1, round(len(rows) * FRESH_SHARE)), False)
            db[name].upsert(rows.take(pa.array(chosen)))
        db.checkpoint()


def _views(stack: ExitStack, spark: SparkSession, store: Path) -> SparkSession:
    """Return a session with a view of each table, pinned at the newest seq until `stack` ends."""
    found = register(spark.newSession())
    stack.enter_context(snapshot(found, store)).create_views()
    return found


def _parquet_views(spark: SparkSession, files: Mapping[str, Path]) -> SparkSession:
    found = spark.newSession()
    for name, file in files.items():
        found.read.parquet(str(file)).createOrReplaceTempView(name)
    return found


def _query(found: Seconds, sessions: Sessions, name: str, text: str, rounds: int) -> None:
    """Run a query in each session in turn: once cold, then so many rounds."""
    answers: dict[str, Rows] = {}
    for turn in range(rounds + 1):
        for peer, spark in sessions.items():
            start, begun = time.perf_counter(), cpu_s()
            answers[peer] = spark.sql(text).collect()
            wall, cpu = time.perf_counter() - start, cpu_s() - begun
            kept = f"{name}, {peer}" if turn else f"{name}, {peer}, cold"
            found.setdefault(kept, []).append(wall)
            found.setdefault(f"{kept}, CPU", []).append(cpu)
        _compare(name, answers)


def _compare(name: str, answers: Mapping[str, Rows]) -> None:
    for peer, rows in answers.items():
        where = difference(rows, answers[PARQUET])
        if where is not None:
            raise RuntimeError(f"{name}: {peer} answers other than Parquet: {where}")


def read_ratio(found: Seconds | None, read: str) -> float | None:
    """Return the median of a read over Parquet's; None where nothing was measured."""
    if found is None:
        return None
    return median(found[f"{read}, {OURS}"]) / median(found[f"{read}, {PARQUET}"])


def ratios(found: Seconds, peer: str) -> dict[str, float]:
    """Return of each query the median of a peer over Parquet's: seconds by seconds."""
    return {
        name: median(found[f"{name}, {peer}"]) / median(found[f"{name}, {PARQUET}"]) for name in ALL
    }


def mean_ratio(found: Seconds | None, peer: str) -> float | None:
    """Return the geometric mean of `ratios`; None where nothing was measured."""
    return None if found is None else geometric_mean(ratios(found, peer).values())


def worst_ratio(found: Seconds | None, peer: str) -> float | None:
    """Return the greatest of `ratios`; None where nothing was measured."""
    return None if found is None else max(ratios(found, peer).values())
