"""The workloads. Each returns rounds of seconds by peer, measured in turn in one session.

Those of `rounds` come with the CPU seconds of all processes of Spark, under "<peer>, CPU".
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from bench.spark import data
from bench.spark.cpu import cpu_s
from siltstone.spark import merge, optimize, register

Seconds = dict[str, list[float]]
OURS, PARQUET = "siltstone", "parquet"
KEYED = {"id": "int64", "x": "float64", "k": "int32", "s": "string", "ts": "timestamp[us, tz=UTC]"}


@dataclass(frozen=True)
class Place:
    """Where a run works: the session, a folder of its own, how many rows, how many rounds."""

    spark: SparkSession
    folder: Path
    rows: int
    rounds: int

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def catalog(self, name: str, store: Path) -> str:
        """Return the name of a store as a catalog of the session."""
        register(self.spark, stores={name: store})
        return name


def prepare(place: Place) -> None:
    """Write the rows, and merge them into base."""
    with st.connect(place.store, background=False) as db:
        table = db.create_table("t", KEYED, primary_key="id")
        reader = pa.RecordBatchReader.from_batches(
            data.SCHEMA,
            (b for each in data.files(place.rows) for b in each.to_batches(max_chunksize=131_072)),
        )
        table.upsert(reader)
        db.checkpoint()
        db.merge()
    place.catalog("bench", place.store)


def rounds(place: Place, peers: Mapping[str, Callable[[], object]]) -> Seconds:
    """Run each peer once to warm up, then in turn."""
    for work in peers.values():
        work()
    cpus: Seconds = {f"{name}, CPU": [] for name in peers}
    found: Seconds = {name: [] for name in peers}
    for _ in range(place.rounds):
        for name, work in peers.items():
            start, begun = time.perf_counter(), cpu_s()
            work()
            found[name].append(time.perf_counter() - start)
            cpus[f"{name}, CPU"].append(cpu_s() - begun)
    return found | cpus


def read_all(frame: DataFrame) -> None:
    """Read all rows and columns."""
    frame.write.format("noop").mode("overwrite").save()


def plans(place: Place) -> Seconds:
    """Plan a read after a commit of 10 rows, and again: with 7.5 % of the rows in the log, or 0."""
    found: Seconds = {}
    with st.connect(place.store, background=False) as db:
        db.serve_local()
        for name in ("clean", "with a log"):
            if name == "with a log":
                ids = np.random.default_rng(7).choice(place.rows, place.rows * 3 // 40, False)
                db["t"].upsert(data.rows(ids, 8))
            again = f"{name}, again"
            found[name], found[again] = [], []
            for turn in range(place.rounds + 1):
                db["t"].upsert(data.rows(np.arange(10) + 10 * turn, turn))
                start = time.perf_counter()
                frame = _planned(place)
                middle = time.perf_counter()
                _planned(place)
                end = time.perf_counter()
                del frame
                if turn:
                    found[name].append(middle - start)
                    found[again].append(end - middle)
        db.checkpoint()
        db.merge()
    return found


def _planned(place: Place) -> DataFrame:
    frame = place.spark.table("bench.t")
    frame.schema  # noqa: B018 - Spark has loaded the table then
    return frame


def overlay(place: Place) -> Seconds:
    """Read all with 10 % of the keys in the levels above base."""

    def read() -> None:
        read_all(place.spark.table("bench.t"))

    clean = rounds(place, {"clean": read})
    with st.connect(place.store, background=False) as db:
        ids = np.random.default_rng(5).choice(place.rows, place.rows // 10, replace=False)
        db["t"].upsert(data.rows(ids, 6))
        db.checkpoint()
    return clean | rounds(place, {"overlaid": read})


def writes(place: Place) -> Seconds:
    """Write half of the rows, read from Parquet, into a table of its own each time."""
    source = place.folder / "source"
    if not source.exists():
        data.write_parquet(source, data.files(place.rows // 2))
    frame = place.spark.read.parquet(str(source))
    numbers = iter(range(1000))

    def ours_() -> None:
        store = place.folder / f"written-{next(numbers)}"
        with st.connect(store) as db:
            db.create_table("t", KEYED, primary_key="id")
        frame.writeTo(f"{place.catalog(store.name.replace('-', '_'), store)}.t").append()
        shutil.rmtree(store)

    def parquet() -> None:
        folder = place.folder / f"written-{next(numbers)}"
        frame.write.parquet(str(folder))
        shutil.rmtree(folder)

    return rounds(place, {OURS: ours_, PARQUET: parquet})


def _upsert(frame: DataFrame) -> None:
    writer = frame.writeTo("bench.t").option("op", "upsert").option("missing", "null")
    writer.append()


def merges(place: Place) -> Seconds:
    """MERGE 1 % of the rows, half of them new; an upsert of them, and a scan of their columns."""
    numbers = iter(range(1000))

    def changes() -> DataFrame:
        turn = next(numbers)
        step, new = 200, place.rows * (turn + 300)
        text = f"id % {step} = {turn % step}"
        old = place.spark.range(place.rows).where(text)
        fresh = place.spark.range(new, new + place.rows // step)
        return old.union(fresh).selectExpr(
            "id", "id * 0.5D AS x", "7 AS k", "'merged' AS s", "timestamp'2026-01-01' AS ts"
        )

    def merge_() -> None:
        changes().createOrReplaceTempView("changes")
        place.spark.sql(
            "MERGE INTO bench.t t USING changes c ON t.id = c.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def upsert() -> None:
        _upsert(changes())

    def scan() -> None:
        read_all(place.spark.table("bench.t"))

    return rounds(place, {"merge": merge_, "upsert": upsert, "scan": scan})


def upserts(place: Place) -> Seconds:
    """Upsert 1 % of the rows, half of them new; commit to visible, against Delta's merge."""
    from deltalake import DeltaTable, write_deltalake

    delta = place.folder / "delta"
    for table in data.files(place.rows):
        write_deltalake(str(delta), table, mode="append")
    numbers = iter(range(1000))

    def fresh() -> tuple[pa.Table, DataFrame]:
        turn = next(numbers)
        random = np.random.default_rng(100 + turn)
        old = random.choice(place.rows, place.rows // 200, replace=False)
        new = np.arange(place.rows // 200) + place.rows * (turn + 2)
        table = data.rows(np.concatenate([old, new]), turn)
        path = data.write_parquet(place.folder / f"changes-{turn}", iter([table]))
        return table, place.spark.read.parquet(str(path))

    changes = [fresh() for _ in range(place.rounds + 1)]
    ours_left, theirs_left = iter(changes), iter(changes)

    def ours_() -> None:
        _upsert(next(ours_left)[1])

    def theirs() -> None:
        merger = DeltaTable(str(delta)).merge(
            next(theirs_left)[0], "s.id = t.id", source_alias="s", target_alias="t"
        )
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    return rounds(place, {OURS: ours_, "delta": theirs})


def compactions(place: Place) -> Seconds:
    """Make 10 files of 200: `optimize(spark, ...)` against Lance's own compaction."""
    share = place.rows // 400
    found: Seconds = {"siltstone": [], "lance": []}
    for turn in range(place.rounds + 1):
        store, raw_path = place.folder / f"small-{turn}", place.folder / f"small-{turn}.lance"
        with st.connect(store, background=False) as db:
            table = db.create_table("t", KEYED, primary_key="id")
            for part in range(200):
                ids = np.arange(part * share, (part + 1) * share)
                table.upsert(data.rows(ids, part))
                db.checkpoint()
                lance.write_dataset(
                    data.rows(ids, part), raw_path, mode="append" if part else "create"
                )
        start = time.perf_counter()
        optimize(place.spark, store)
        middle = time.perf_counter()
        lance.dataset(raw_path).optimize.compact_files()
        end = time.perf_counter()
        if turn:
            found["siltstone"].append(middle - start)
            found["lance"].append(end - middle)
        shutil.rmtree(store)
        shutil.rmtree(raw_path)
    return found


def streams(place: Place) -> dict[str, Any]:
    """Stream the rows of ten bulk commits into another store, a commit's worth at a time."""
    target, origin = place.folder / "streamed", place.folder / "stream"
    with st.connect(target, background=False) as db:
        db.create_table("t", KEYED, primary_key="id")
    with st.connect(origin, background=False) as db:
        table = db.create_table("t", KEYED, primary_key="id")
        for rows in data.files(place.rows, file_rows=place.rows // 10):
            table.upsert(rows)
        db.checkpoint()
    place.catalog("origin", origin)
    place.catalog("target", target)
    source = place.spark.readStream.option("startingSeq", "earliest")
    source = source.option("maxRowsPerTrigger", str(max(1, place.rows // 10)))
    frame = source.table("origin.t.changes")
    start = time.perf_counter()
    query = (
        frame.drop("_seq", "_op")
        .writeStream.option("checkpointLocation", str(place.folder / "checkpoint"))
        .trigger(availableNow=True)
        .toTable("target.t")
    )
    query.awaitTermination()
    seconds = time.perf_counter() - start
    with st.connect(target, read_only=True) as db:
        rows = db["t"].count()
    return {"rows": rows, "seconds": seconds, "rows/s": rows / seconds}


def batch_overhead(place: Place) -> Seconds:
    """Micro-batches of few rows: rate source into noop against ours into ours, s per batch.

    "a commit" is one of as many rows, by the store's owner, in the same run as ours.
    """
    ours_, commits = _micro_batches(place, is_ours=True)
    theirs, _ = _micro_batches(place, is_ours=False)
    return {"siltstone": ours_, "rate into noop": theirs, "a commit": commits}


def _micro_batches(
    place: Place, *, is_ours: bool, batches: int = 12
) -> tuple[list[float], list[float]]:
    """Return the seconds of the later half of the batches, and of the commits that fed them."""
    commits: list[float] = []
    folder = place.folder / f"micro-{'ours' if is_ours else 'rate'}"
    with st.connect(folder / "store", background=False) as db:
        for name in ("t", "copy"):
            db.create_table(name, KEYED, primary_key="id")
        db.serve_local()
        if is_ours:
            micro = place.catalog("micro", db.path)
            source = place.spark.readStream.option("startingSeq", "latest")
            frame = source.table(f"{micro}.t.changes").drop("_seq", "_op")
            writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
            query = writer.toTable(f"{micro}.copy")
        else:
            frame = place.spark.readStream.format("rate").option("rowsPerSecond", 10).load()
            writer = frame.writeStream.format("noop")
            query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        for turn in range(batches):
            rows = data.rows(np.arange(10) + 10 * turn, turn)
            start = time.perf_counter()
            db["t"].upsert(rows)
            commits.append(time.perf_counter() - start)
            if is_ours:
                query.processAllAvailable()
            else:
                time.sleep(1)
        query.stop()
        done = [
            p.durationMs["triggerExecution"] / 1e3 for p in query.recentProgress if p.numInputRows
        ]
    return done[len(done) // 2 :], commits[batches // 2 :]


_FIRST = {
    OURS: """
from siltstone.spark import session
spark = session({{"spark.ui.enabled": "false"}}, master="local[2]", stores={{"bench": "{store}"}})
begin = time.perf_counter()
spark.sql("SELECT sum(k), max(s) FROM bench.t").collect()
""",
    PARQUET: """
from siltstone.spark import session
spark = session({{"spark.ui.enabled": "false"}}, master="local[2]")
begin = time.perf_counter()
spark.read.parquet("{source}").selectExpr("sum(k)", "max(s)").collect()
""",
}


def first_queries(place: Place) -> Seconds:
    """Run the first query of a session, in a process of its own; the seconds of the query."""
    source = place.folder / "first"
    if not source.exists():
        data.write_parquet(source, data.files(place.rows))
    found: Seconds = {name: [] for name in _FIRST}
    for _ in range(place.rounds):
        for name, text in _FIRST.items():
            code = text.format(store=place.store, source=source)
            code = f"import time{code}print(time.perf_counter() - begin)"
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            )
            found[name].append(float(done.stdout.split()[-1]))
    return found


def settle(place: Place) -> None:
    """Fold what was upserted into base."""
    merge(place.spark, place.store)
