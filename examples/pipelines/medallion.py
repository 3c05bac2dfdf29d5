"""Bronze, silver, gold: raw taxi events become clean tables, and sums that are always up to date.

    python -m examples.pipelines.medallion --store STORE [--rows 5000] [--check]

    raw files ──▶ bronze_events ──▶ silver_trips        ──▶ gold_zone_days
                                    silver_payments         gold_counted
                                    silver_vehicles

Each arrow is a stream, and each of its batches is one commit. Kill it at any moment and start it
again: it goes on where it was, and no batch counts twice. Give another folder as --checkpoints, and
all streams start from the first event again, which changes nothing. README.md tells the rest.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import siltstone as st
from examples.pipelines import taxi_events
from siltstone.spark import session, snapshot, transaction
from siltstone.spark.sessions.snapshots import SparkSnapshot

# Every row has the time at which its event was sent: by it we know the newer of two.
TABLES: dict[str, tuple[list[str], dict[str, str]]] = {
    "bronze_events": (
        ["file", "row"],
        {"file": "string", "row": "int64", **dict.fromkeys(taxi_events.COLUMNS, "string")},
    ),
    "silver_trips": (
        ["trip"],
        {
            "trip": "int64",
            "vehicle": "int64",
            "zone": "string",
            "started_at": "timestamp[us]",
            "fare": "decimal(10,2)",
            "is_void": "bool",
            "sent_at": "timestamp[us]",
        },
    ),
    "silver_payments": (
        ["trip"],
        {
            "trip": "int64",
            "paid_by": "string",
            "amount": "decimal(10,2)",
            "sent_at": "timestamp[us]",
        },
    ),
    "silver_vehicles": (
        ["vehicle"],
        {"vehicle": "int64", "zone": "string", "odometer_km": "int64", "sent_at": "timestamp[us]"},
    ),
    "gold_counted": (
        ["trip"],
        {
            "trip": "int64",
            "zone": "string",
            "day": "date32",
            "fare": "decimal(10,2)",
            "is_void": "bool",
            "sent_at": "timestamp[us]",
        },
    ),
    "gold_zone_days": (
        ["zone", "day"],
        {"zone": "string", "day": "date32", "trips": "int64", "fares": "decimal(18,2)"},
    ),
}
SILVER = ("silver_trips", "silver_payments", "silver_vehicles")
Apply = Callable[[DataFrame, int], None]


class Medallion:
    """The three streams over one store. Each takes what there is, and ends."""

    def __init__(
        self, spark: SparkSession, store: Path, raw: Path, checkpoints: Path, *, files_max: int
    ) -> None:
        """Take at most `files_max` files, and the changes of as many, into one batch."""
        self._spark, self._store = spark, str(store)
        self._raw, self._checkpoints, self._files_max = str(raw), checkpoints, files_max

    def create_tables(self) -> None:
        # join: if another process owns the store and serves it, work through that owner.
        with st.connect(self._store, join=True) as db:
            for name, (key, columns) in TABLES.items():
                db.create_table(name, columns, primary_key=key, exist_ok=True)

    def bronze(self) -> None:
        """Keep every event as it came, under its place in the raw files.

        By that key an event that is read again replaces itself; without a key it would be there
        twice. And a table with a key has a change feed, which the next stream reads.
        """
        columns = ", ".join(f"{name} string" for name in taxi_events.COLUMNS)
        raw = self._spark.readStream.schema(columns)
        raw = raw.option("maxFilesPerTrigger", self._files_max)
        file, row = f.col("_metadata.file_name"), f.col("_metadata.row_index")
        query = (
            raw.parquet(self._raw)
            .select(file.alias("file"), row.alias("row"), *taxi_events.COLUMNS)
            .writeStream.format("siltstone")  # the number of the batch is part of its commit
            .option("uri", self._store)
            .option("table", "bronze_events")
            .option("checkpointLocation", str(self._checkpoints / "bronze"))
            .trigger(availableNow=True)  # processingTime="5 seconds": for ever
            .start()
        )
        query.awaitTermination()
        with st.connect(self._store, read_only=True) as db:
            print(f"bronze: {db['bronze_events'].count():,} events", flush=True)

    def silver(self) -> None:
        """Split each event into typed rows of three tables, all of them in one commit.

        So no reader ever sees a trip without its payment, or one of an unknown vehicle.
        """

        def apply(batch: DataFrame, number: int) -> None:
            events = typed(batch).persist()  # three tables are made of it
            with (
                snapshot(batch.sparkSession, self._store) as now,
                transaction(self._store, token=self._token(number)) as tx,
            ):
                for table in SILVER:
                    tx.write(newer(events, now, table), table, op="upsert")
            events.unpersist()
            print(f"silver batch {number}: committed at seq {tx.seq}", flush=True)

        self._follow("bronze_events", "silver", apply)

    def gold(self) -> None:
        """Keep trips and fares of each zone and day, at the cost of what changed.

        The feed has the new row of a trip, not the one before it. So gold remembers of each trip
        what it has counted: it subtracts that, adds the new row, and remembers the new row. Sums
        and memory change in one commit, so one is never ahead of the other.
        """

        def apply(batch: DataFrame, number: int) -> None:
            # No deletes: silver marks a void trip, so that a late event does not bring it back.
            trips = batch.withColumn("day", f.to_date("started_at"))
            with (
                snapshot(batch.sparkSession, self._store) as now,
                transaction(self._store, token=self._token(number)) as tx,
            ):
                changed = newer(trips, now, "gold_counted").persist()
                before = now["gold_counted"].join(changed.select("trip"), "trip")
                sums = added(now["gold_zone_days"], counts(changed, 1), counts(before, -1))
                tx.write(changed, "gold_counted", op="upsert")
                tx.write(sums.where("trips > 0"), "gold_zone_days", op="upsert")
                gone = sums.where("trips = 0").select("zone", "day")
                tx.write(gone, "gold_zone_days", op="delete")
            changed.unpersist()
            print(f"gold batch {number}: committed at seq {tx.seq}", flush=True)

        self._follow("silver_trips", "gold", apply)

    def _follow(self, table: str, name: str, apply: Apply) -> None:
        """Apply the changes of a table, batch by batch; a batch ends where a commit ended."""
        changes = (
            self._spark.readStream.format("siltstone")
            .option("uri", self._store)
            .option("table", table)
            .option("startingSeq", "earliest")
            .option("maxRowsPerTrigger", self._files_max * taxi_events.TRIPS_PER_FILE)
        )
        query = (
            changes.load()
            .writeStream.foreachBatch(apply)
            .option("checkpointLocation", str(self._checkpoints / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _token(self, number: int) -> tuple[str, int]:
        """Return the name of the batch: a commit with a name that was committed does nothing.

        Spark tries a batch again if it was killed before it heard of our commit. The query's id
        lies in the checkpoint, so a new checkpoint counts its batches anew.
        """
        query = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query is not None  # we are in a batch
        return query, number


def typed(batch: DataFrame) -> DataFrame:
    """Return the events with types; without those that cannot be read, which bronze keeps."""
    return batch.select(
        f.col("trip").try_cast("bigint"),
        f.col("sent_at").try_cast("timestamp_ntz"),
        f.col("vehicle").try_cast("bigint"),
        "zone",
        f.col("started_at").try_cast("timestamp_ntz"),
        f.col("fare").try_cast("decimal(10,2)"),
        (f.col("fare").try_cast("decimal(10,2)") + f.col("tip").try_cast("decimal(10,2)"))
        .cast("decimal(10,2)")
        .alias("amount"),
        "paid_by",
        f.col("odometer_km").try_cast("bigint"),
        (f.col("status") == "void").alias("is_void"),
    ).dropna()


def newer(rows: DataFrame, now: SparkSnapshot, table: str) -> DataFrame:
    """Return the newest row of each key, if it is newer than the row that the table has.

    This drops what came twice, what comes after its own correction, and in a replay everything.
    It compares with all keys of the table: the part of a batch whose cost grows with the table.
    """
    (key,), columns = TABLES[table]
    newest = rows.groupBy(key).agg(f.max_by(f.struct("*"), "sent_at").alias("it")).select("it.*")
    known = now.read(table, columns=[key, "sent_at"]).withColumnRenamed("sent_at", "known_at")
    is_newer = f.col("known_at").isNull() | (f.col("sent_at") > f.col("known_at"))
    return newest.join(known, key, "left").where(is_newer).select(*columns)


def counts(trips: DataFrame, sign: int) -> DataFrame:
    """Return what the trips add to the sums, or with the sign -1 take from them."""
    one, fare = f.lit(sign).cast("bigint"), (f.col("fare") * sign).cast("decimal(18,2)")
    return trips.where("NOT is_void").select("zone", "day", one.alias("trips"), fare.alias("fares"))


def added(sums: DataFrame, plus: DataFrame, minus: DataFrame) -> DataFrame:
    """Return the new sums of those zones and days that changed."""
    key = ["zone", "day"]
    touched = plus.union(minus).select(*key).distinct()
    rows = sums.join(touched, key).select(*plus.columns).union(plus).union(minus)
    totals = rows.groupBy(*key).agg(f.sum("trips").alias("trips"), f.sum("fares").alias("fares"))
    return totals.withColumn("fares", f.col("fares").cast("decimal(18,2)"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.pipelines.medallion")
    parser.add_argument("--store", type=Path, required=True, help="created if it is not there")
    parser.add_argument("--rows", type=int, default=5_000, help="trips in the raw files")
    parser.add_argument("--checkpoints", type=Path, help="default: STORE-checkpoints")
    parser.add_argument("--files-per-batch", type=int, default=1, help="at most, default: 1")
    parser.add_argument("--check", action="store_true", help="compare with the raw files")
    given = parser.parse_args(arguments)
    store = given.store.absolute()  # Spark's processes have folders of their own
    raw = store.with_name(f"{store.name}-raw")
    checkpoints = given.checkpoints or store.with_name(f"{store.name}-checkpoints")

    print(f"raw: {taxi_events.write_files(raw, given.rows)} files in {raw}", flush=True)
    spark = session({"spark.sql.shuffle.partitions": "4"})  # batches are small
    files_max: int = given.files_per_batch
    pipeline = Medallion(spark, store, raw, checkpoints.absolute(), files_max=files_max)
    pipeline.create_tables()
    # One after the other here, so that a run is easy to follow; with processingTime all three may
    # run at once, in one process or in three.
    pipeline.bronze()
    pipeline.silver()
    pipeline.gold()
    return check(store, raw) if given.check else 0


def check(store: Path, raw: Path) -> int:
    """Print how each table compares with the raw files; return 1 if one is different."""
    found = taxi_events.differences(store, raw)
    for table, (rows, wrong) in found.items():
        print(f"check: {table} has {rows:,} rows, {wrong:,} differences")
    return int(any(wrong for _, wrong in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
