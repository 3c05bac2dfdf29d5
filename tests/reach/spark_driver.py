"""A Spark of its own that reads a mirror: `python -m tests.reach.spark_driver JSON`.

The JSON says `url`, and which `seq`, `tag` and `time` to read; the environment has the credentials.
Prints as JSON the rows that each road gave, and the sentences by which writes were refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from siltstone.errors import SiltstoneError
from siltstone.spark import merge, session, snapshot, transaction
from tests.spark.stream_driver import SHORT_LIVED

Given = dict[str, Any]
WRITES = {
    "insert": "INSERT INTO shop.keyed VALUES (1, 'new')",
    "overwrite": "INSERT OVERWRITE shop.keyed VALUES (1, 'new')",
    "update": "UPDATE shop.keyed SET v = 'new' WHERE length(v) = 2",
    "merge": "MERGE INTO shop.keyed USING (SELECT 1L id, 'x' v) x ON keyed.id = x.id"
    " WHEN MATCHED THEN UPDATE SET *",
    "delete": "DELETE FROM shop.keyed WHERE id = 1",
    "truncate": "TRUNCATE TABLE shop.plain",
    "create": "CREATE TABLE shop.t (id BIGINT PRIMARY KEY)",
    "make": "CREATE TABLE shop.t AS SELECT * FROM shop.plain",
    "alter": "ALTER TABLE shop.keyed ADD COLUMNS (w BIGINT)",
    "drop": "DROP TABLE shop.keyed",
    "call_merge": "CALL shop.system.merge()",
    "call_checkpoint": "CALL shop.system.checkpoint()",
    "call_vacuum": "CALL shop.system.vacuum()",
    "call_tag": "CALL shop.system.tag(name => 'mine')",
    "call_rollback": "CALL shop.system.rollback_to(table => 'keyed', tag => 'first')",
}


def main(given: Given) -> dict[str, object]:
    spark = session(
        {**SHORT_LIVED, "spark.sql.shuffle.partitions": "2"},
        master="local[2]",
        stores={"shop": given["url"]},
    )
    spark.sparkContext.setLogLevel("FATAL")
    try:
        known: Any = spark.conf.getAll
        said = "\n".join(f"{key} {text}" for key, text in known.items())
        plan: Any = spark.table("shop.keyed").where("v > 'v3'")
        said += plan._jdf.queryExecution().toString()
        return {
            "reads": {name: _tried(lambda m=make: m(spark, given)) for name, make in READS.items()},
            "stream": _streamed(spark),
            "refused": {name: _tried(work) for name, work in _writes(spark, given).items()},
            "said": said,
        }
    finally:
        spark.stop()


def _sql(text: str) -> Callable[[SparkSession, Given], DataFrame]:
    return lambda spark, given: spark.sql(text.format(**given))


def _loaded(**options: str) -> Callable[[SparkSession, Given], DataFrame]:
    def load(spark: SparkSession, given: Given) -> DataFrame:
        filled = {name: text.format(**given) for name, text in options.items()}
        return spark.read.format("siltstone").options(**filled).load(f"{given['url']}/keyed")

    return load


def _pinned(spark: SparkSession, given: Given) -> DataFrame:
    with snapshot(spark, given["url"], seq=given["seq"]) as seen:
        return spark.createDataFrame(seen["keyed"].collect(), seen["keyed"].schema)


READS = {
    "tables": _sql("SHOW TABLES IN shop"),
    "newest": _sql("SELECT * FROM shop.keyed"),
    "plain": _sql("SELECT * FROM shop.plain"),
    "seq": _sql("SELECT * FROM shop.keyed VERSION AS OF {seq}"),
    "tag": _sql("SELECT * FROM shop.keyed VERSION AS OF '{tag}'"),
    "time": _sql("SELECT * FROM shop.keyed TIMESTAMP AS OF '{time}'"),
    "filtered": _sql("SELECT id FROM shop.keyed WHERE v = 'v9'"),
    "counted": _sql("SELECT count(*) AS n FROM shop.plain"),
    "joined": _sql("SELECT k.id FROM shop.keyed k JOIN shop.docs d ON k.id = d.id WHERE k.id < 9"),
    "searched": _sql("CALL shop.system.search(table => 'docs', query => 'fox', k => 3)"),
    "tags": _sql("SELECT * FROM shop.system.tags"),
    "files": _sql("SELECT path FROM shop.keyed.files"),
    "changes": _sql("SELECT id, _commit_version FROM shop.keyed CHANGES FROM VERSION {after}"),
    "loaded_at_seq": _loaded(seq="{seq}"),
    "loaded_changes": _loaded(readChangeFeed="true", startingVersion="{after}"),
    "snapshot": _pinned,
}


def _tried(work: Callable[[], DataFrame]) -> Any:
    """Return the sorted rows of a frame; or the sentence by which it was refused."""
    try:
        rows = [list(map(_plain, row)) for row in work().collect()]
    except (PySparkException, SiltstoneError, Py4JJavaError) as error:
        return str(error)
    return sorted(rows, key=repr)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else str(value)


def _streamed(spark: SparkSession) -> Any:
    """Return the rows of a stream that is stopped and goes on; each is there once."""
    found: list[list[Any]] = []

    def run(folder: str) -> None:
        rows = spark.readStream.table("shop.keyed.changes").writeStream
        rows = rows.option("checkpointLocation", folder).trigger(availableNow=True)
        rows = rows.foreachBatch(lambda batch, _: found.extend(map(list, batch.collect())))
        rows.start().awaitTermination()

    with TemporaryDirectory() as folder:
        try:
            run(folder)
            run(folder)
        except (PySparkException, Py4JJavaError) as error:
            return str(error)
    return sorted(found, key=repr)


def _writes(spark: SparkSession, given: Given) -> dict[str, Callable[[], Any]]:
    frame = spark.createDataFrame([(1, "new")], "id long, v string")

    def append() -> None:
        place = {"uri": given["url"], "table": "keyed"}
        frame.write.format("siltstone").options(**place).mode("append").save()

    def write() -> None:
        with transaction(given["url"]) as tx:
            tx.write(frame, "keyed")

    return {
        **{name: lambda text=text: spark.sql(text) for name, text in WRITES.items()},
        "append": append,
        "transaction": write,
        "spark_merge": lambda: merge(spark, given["url"]),
    }


if __name__ == "__main__":
    sys.stdout.write("RESULT " + json.dumps(main(json.loads(sys.argv[1]))) + "\n")
