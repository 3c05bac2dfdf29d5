"""A client of Spark Connect that has its API alone: prints what it saw of a catalog, as JSON.

connect_client.py URL WHICH STORE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn


def rows(frame: DataFrame) -> list[list[Any]]:
    return sorted(list(row) for row in frame.collect())


def said(call: Callable[[], object]) -> list[str]:
    """Return the class of an error, and its first line."""
    try:
        return ["nothing", repr(call())]
    except Exception as error:  # noqa: BLE001 - it is looked at
        return [type(error).__name__, str(error).split("\n", maxsplit=1)[0]]


def with_jar(spark: SparkSession, store: str) -> dict[str, Any]:
    """Run statements on a server that has the catalog."""
    found: dict[str, Any] = {"tables": rows(spark.sql("SHOW TABLES IN shop"))}
    everything = "SELECT * FROM shop.o"
    found["select"] = rows(spark.sql("SELECT id, v FROM shop.o WHERE id > 1"))
    before = spark.sql("SELECT max(seq) FROM shop.system.log").collect()[0][0]
    spark.sql("INSERT INTO shop.o VALUES (4, 'four')")
    found["inserted"] = rows(spark.sql(everything))
    found["again"] = said(lambda: spark.sql("INSERT INTO shop.o VALUES (4, 'x')").collect())
    found["none"] = said(lambda: spark.sql("SELECT * FROM shop.none").collect())
    spark.sql(
        "MERGE INTO shop.o USING (SELECT * FROM VALUES (3, 'three'), (5, 'five') AS x(id, v)) x"
        " ON o.id = x.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    found["merged"] = rows(spark.sql(everything))
    source = spark.createDataFrame([(1, "one"), (6, "six")], "id bigint, v string")
    merging = source.alias("x").mergeInto("shop.o", fn.expr("shop.o.id = x.id"))
    merging.whenMatched().delete().whenNotMatched().insertAll().merge()
    found["merged by a frame"] = rows(spark.table("shop.o"))
    spark.sql("UPDATE shop.o SET v = upper(v) WHERE id % 2 = 0")
    found["updated"] = rows(spark.table("shop.o").where("id % 2 = 0"))
    version = f"SELECT * FROM shop.o VERSION AS OF {before}"
    found["version"] = rows(spark.sql(version))
    found["option"] = rows(spark.read.option("versionAsOf", before).table("shop.o"))
    frame, pinned = spark.table("shop.o"), spark.sql(version)
    found["twice"] = [frame.count(), frame.join(frame.alias("y"), "id").count()]
    frame.withColumn("id", fn.expr("id + 10")).writeTo("shop.o").append()
    found["after"] = [frame.count(), frame.union(frame).count(), pinned.count()]
    frame.writeTo("shop.made").using("siltstone").tableProperty("primaryKey", "id").create()
    found["made"] = [spark.table("shop.made").count(), spark.sql("SHOW TABLES IN shop").count()]
    found["tag"] = rows(spark.sql("CALL shop.system.tag('mine')").select("tag"))
    query = (
        spark.readStream.table("shop.o.changes").selectExpr("_seq AS seq", "id", "v")
        .writeStream.option("checkpointLocation", f"{store}.checkpoint")
        .trigger(availableNow=True).toTable("shop.log")
    )  # fmt: skip
    query.awaitTermination()
    found["streamed"] = spark.table("shop.log").count()
    return found


def without_jar(spark: SparkSession, store: str) -> dict[str, Any]:
    """Run what a server has that was started without the jar."""
    table = spark.read.format("siltstone").load(f"{store}/o")
    found: dict[str, Any] = {"format": rows(table)}
    table.selectExpr("id + 10 AS id", "v").write.format("siltstone").mode("append").save(
        f"{store}/o"
    )
    found["written"] = spark.read.format("siltstone").load(f"{store}/o").count()
    found["a name"] = said(lambda: spark.sql("SELECT * FROM shop.o").collect())
    found["no catalog"] = said(lambda: spark.sql("SELECT * FROM other.o").collect())
    from siltstone.spark import register  # the other clients do without

    register(spark, stores={"mine": store})
    found["registered"] = spark.sql("SELECT id FROM mine.o").count()
    return found


def main(url: str, which: str, store: str) -> dict[str, Any]:
    builder: Any = SparkSession.builder
    spark = builder.remote(url).getOrCreate()
    parts = {"with": with_jar, "without": without_jar}
    try:
        found = parts[which](spark, store)
    finally:
        spark.stop()
    return found | {"imports siltstone": "siltstone" in sys.modules}


if __name__ == "__main__":
    sys.stdout.write("RESULT " + json.dumps(main(*sys.argv[1:])) + "\n")
