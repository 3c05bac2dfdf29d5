"""A client of a Spark Connect server that somebody else runs: prints what it saw of a store.

    python -m tests.spark.remote_driver URL STORE

The server has another working directory and another folder for temporary files.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import register, snapshot, transaction


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def says(call: Callable[[], object], *words: str) -> bool:
    """Return whether a call fails with these words."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
        return all(word in str(error) for word in words)
    return False


def load(spark: SparkSession, store: str, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("siltstone").options(**given).load(store)


def reads(spark: SparkSession, store: str) -> None:
    tell("load", rows_of(load(spark, f"{store}/t")))
    tell("wrong", says(load(spark, f"{store}/none").count, "there is no table 'none'"))
    past = {"timestampAsOf": "2026-11-20 10:00"}  # the zone of a client's session is not known
    tell("time", says(load(spark, f"{store}/t", **past).count, "give the zone of such times"))
    created = f"CREATE TABLE t USING siltstone OPTIONS (uri '{store}', table 't')"
    tell(
        "catalog", says(lambda: spark.sql(created).collect(), "Spark's own catalog keeps no table")
    )
    with snapshot(spark, os.path.relpath(store)) as now:
        tell("snapshot", rows_of(now["t"]), rows_of(now.read("t", ["v"], "id >= 3")))
        tell("views", now.create_views())
        joined = "select a.v, b.n from t a join other b on a.id = b.id order by b.n"
        tell("sql", [tuple(row) for row in spark.sql(joined).collect()])
        tell("many tasks", now.read("many", rows_max=400).count())
        tell("temporary files of the client", list(Path(tempfile.gettempdir()).iterdir()))
        kept = now["t"]
    tell("closed", rows_of(kept))


def writes(spark: SparkSession, store: str) -> None:
    rows = spark.range(2).selectExpr("id", "'new' v")
    rows.write.format("siltstone").mode("append").save(f"{store}/t")
    tell("upserted", rows_of(load(spark, f"{store}/t")))
    rows.write.format("siltstone").mode("append").option("primaryKey", "id").save(f"{store}/made")
    tell("created", rows_of(load(spark, f"{store}/made")))
    load(spark, f"{store}/t").count()
    with st.connect(store) as db:  # somebody else, after the read
        db["t"].upsert({"id": 9, "v": "theirs"})
    overwrite = rows.write.format("siltstone").mode("overwrite")
    tell("conflict", says(lambda: overwrite.save(f"{store}/t"), "'t'"))
    tell("kept", load(spark, f"{store}/t").count())


def commits(spark: SparkSession, store: str) -> None:
    with transaction(store, token=("remote", 1)) as tx:
        tx.write(load(spark, f"{store}/t").where("id = 9"), "t", op="delete")
        tx.write(spark.range(5, 7).selectExpr("id", "'two' v"), "made")
    tell("both", load(spark, f"{store}/t").count(), load(spark, f"{store}/made").count())
    changes = load(spark, f"{store}/t", readChangeFeed="true", startingVersion=tx.seq)
    tell("changes", [row["_change_type"] for row in changes.collect()])
    tell("before", load(spark, f"{store}/t", seq=tx.seq - 1).count())
    with st.connect(store, read_only=True) as db:
        tell("here", db["t"].count(), db["made"].count())


def main(url: str, store: str) -> None:
    builder: Any = SparkSession.builder
    spark = register(builder.remote(url).getOrCreate())
    tell("client", type(spark).__module__)
    for part in (reads, writes, commits):
        part(spark, store)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
