"""The workloads. Each returns rounds of seconds by peer, measured in turn in one session.

Those of `rounds` come with the CPU seconds of all processes of Spark, under "<peer>, CPU".
"""

from __future__ import annotations

import shutil
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
from siltstone.spark import merge, optimize, snapshot

Seconds = dict[str, list[float]]
BY_USE = "siltstone, columns as used"
KEYED = {"id": "int64", "x": "float64", "k": "int32", "s": "string", "ts": "timestamp[us, tz=UTC]"}


@dataclass(frozen=True)
class Place:
    """Where a run works: the session, a folder of its own, how many rows, how many rounds."""

    spark: SparkSession
    folder: Path
    rows: int
    rounds: int

    @property
    def parquet(self) -> Path:
        return self.folder / "parquet"

    @property
    def lance(self) -> Path:
        return self.folder / "raw.lance"

    @property
    def store(self) -> Path:
        return self.folder / "store"


def prepare(place: Place) -> None:
    """Write the rows once for each peer, and merge ours into base."""
    data.write_parquet(place.parquet, data.files(place.rows))
    for table in data.files(place.rows):
        mode = "append" if place.lance.exists() else "create"
        lance.write_dataset(table, place.lance, mode=mode)
    with st.connect(place.store, background=False) as db:
        table = db.create_table("t", KEYED, primary_key="id")
        reader = pa.RecordBatchReader.from_batches(
            data.SCHEMA,
            (b for each in data.files(place.rows) for b in each.to_batches(max_chunksize=131_072)),
        )
        table.upsert(reader)
        db.checkpoint()
        db.merge()


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


def sum_x(frame: DataFrame) -> None:
    """Sum one column."""
    frame.groupBy().sum("x").collect()


def count(frame: DataFrame) -> None:
    """Count the rows."""
    frame.count()


def reads(place: Place, use: Callable[[DataFrame], None], columns: str = "") -> Seconds:
    """Use a frame of the rows: ours and raw Lance are told the columns, or ours sees their use."""
    spark = place.spark

    def in_snapshot() -> None:
        with snapshot(spark, place.store) as now:
            use(now.read("t", columns.split(",") if columns else None))

    def as_used() -> None:
        with snapshot(spark, place.store) as now:
            use(now["t"])

    return rounds(
        place,
        {
            "siltstone": in_snapshot,
            BY_USE: as_used,
            "siltstone, load()": lambda: use(ours(place, columns)),
            "parquet": lambda: use(spark.read.parquet(str(place.parquet))),
            "raw lance": lambda: use(raw(place, columns)),
        },
    )


def plans(place: Place) -> Seconds:
    """Plan a read after a commit of 10 rows: with 7.5 % of the rows in the log, and clean."""
    found: Seconds = {}
    with st.connect(place.store, background=False) as db, snapshot(place.spark, db) as kept:
        kept.read("t")
        for name in ("clean", "with a log"):
            if name == "with a log":
                ids = np.random.default_rng(7).choice(place.rows, place.rows * 3 // 40, False)
                db["t"].upsert(data.rows(ids, 8))
                _planned(place)
            found[name], found[f"{name}, CPU"] = [], []
            for turn in range(place.rounds):
                db["t"].upsert(data.rows(np.arange(10) + 10 * turn, turn))
                start, begun = time.perf_counter(), time.process_time()
                _planned(place)
                found[name].append(time.perf_counter() - start)
                found[f"{name}, CPU"].append(time.process_time() - begun)
        db.checkpoint()
        db.merge()
    return found


def _planned(place: Place) -> None:
    with snapshot(place.spark, place.store) as now:
        now.read("t")


def ours(place: Place, columns: str = "") -> DataFrame:
    reader = place.spark.read.format("siltstone").option("uri", str(place.store))
    if columns:
        reader = reader.option("columns", columns)
    return reader.option("table", "t").load()


def raw(place: Place, columns: str = "") -> DataFrame:
    schema = data.DDL
    if columns:
        schema = next(part for part in schema.split(", ") if part.startswith(f"{columns} "))
    return place.spark.read.format("rawlance").option("schema", schema).load(str(place.lance))


def overlay(place: Place) -> Seconds:
    """Read all with 10 % of the keys in the levels above base."""

    def read() -> None:
        with snapshot(place.spark, place.store) as now:
            read_all(now["t"])

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
        _write(frame, store, "upsert")
        shutil.rmtree(store)

    def parquet() -> None:
        folder = place.folder / f"written-{next(numbers)}"
        frame.write.parquet(str(folder))
        shutil.rmtree(folder)

    return rounds(place, {"siltstone": ours_, "parquet": parquet})


def _write(frame: DataFrame, store: Path, op: str) -> None:
    writer = frame.write.format("siltstone").mode("append").option("uri", str(store))
    writer.option("table", "t").option("op", op).save()


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
        _write(next(ours_left)[1], place.store, "upsert")

    def theirs() -> None:
        merger = DeltaTable(str(delta)).merge(
            next(theirs_left)[0], "s.id = t.id", source_alias="s", target_alias="t"
        )
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    return rounds(place, {"siltstone": ours_, "delta": theirs})


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
    source = place.spark.readStream.format("siltstone").option("uri", str(origin))
    source = source.option("table", "t").option("startingSeq", "earliest")
    frame = source.option("maxRowsPerTrigger", str(max(1, place.rows // 10))).load()
    start = time.perf_counter()
    query = (
        frame.drop("_seq", "_op")
        .writeStream.format("siltstone")
        .option("uri", str(target))
        .option("table", "t")
        .option("op", "upsert")
        .option("checkpointLocation", str(place.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
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
            source = place.spark.readStream.format("siltstone").option("uri", str(db.path))
            source = source.option("table", "t").option("startingSeq", "latest")
            frame = source.load().drop("_seq", "_op")
            writer = frame.writeStream.format("siltstone").option("uri", str(db.path))
            writer = writer.option("table", "copy").option("op", "upsert")
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


def settle(place: Place) -> None:
    """Fold what was upserted into base."""
    merge(place.spark, place.store)
