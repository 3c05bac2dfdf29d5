"""A client of Spark Connect, in a process of its own: reads and writes a store, prints what it saw.

    python -m tests.spark.connect_driver STORE

The server is another process, which the client starts on this machine.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from siltstone.spark import register, transaction
from siltstone.spark.java import java_home

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def main(store: str) -> None:
    os.environ["JAVA_HOME"] = str(java_home(os.environ))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    spark = register(builder.remote("local[2]").config(map=SETTINGS).getOrCreate())

    def load(table: str = "t", **options: str) -> DataFrame:
        return spark.read.format("siltstone").options(**options).load(f"{store}/{table}")

    def save(rows: DataFrame, table: str, mode: str = "append", **options: str) -> None:
        rows.write.format("siltstone").mode(mode).options(**options).save(f"{store}/{table}")

    tell("client", type(spark).__module__)
    rows = spark.range(3).selectExpr("id", "'new' v")
    save(rows, "t")
    tell("upserted", sorted(tuple(row) for row in load().collect()))
    save(rows, "made", primaryKey="id")
    tell("created", load("made").count())
    with transaction(store) as tx:
        tx.write(rows.where("id = 1"), "t", op="delete")
        tx.write(rows.selectExpr("id + 10 as id", "v"), "made")
    tell("both", load().count(), load("made").count())
    tell("changes", load(readChangeFeed="true", startingVersion=str(tx.seq)).count())
    try:
        load("none").count()
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of it
        tell("wrong", "there is no table 'none'" in str(error))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
