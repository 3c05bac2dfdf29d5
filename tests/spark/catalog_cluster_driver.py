"""A driver that `spark-submit` starts on a cluster, with the jar and the catalog `shop`.

catalog_cluster_driver.py WHICH FAULTS: prints, as JSON, what was seen of each step, and at which
seq the store was after it. FAULTS is the folder of `faulty_daemon`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from tests.spark.daemons import siblings, socket_of
from tests.spark.faulty_daemon import arm

PIECES = 3
ROWS = 40_000
"""Of each of the pieces; several batches."""
STATEMENTS = {
    "insert": "INSERT INTO shop.t SELECT id, id, 'inserted' FROM range(1000, 2000, 1, 4)",
    "update": "UPDATE shop.t SET v = v + 1, s = 'updated' WHERE id % 7 = 2",
    "merge": """MERGE INTO shop.t USING (SELECT id FROM range(500, 2500, 1, 4)) x ON t.id = x.id
        WHEN MATCHED AND t.id % 3 = 0 THEN DELETE
        WHEN MATCHED AND t.id % 3 = 1 THEN UPDATE SET v = -1, s = 'merged'
        WHEN NOT MATCHED THEN INSERT (id, v, s) VALUES (x.id, 0, 'new')""",
    "delete": "DELETE FROM shop.t WHERE v % 5 = 3",
    "make": """CREATE TABLE shop.made TBLPROPERTIES ('primaryKey' = 'id')
        AS SELECT id, s FROM shop.t WITH (maxRowsPerTask = 300)""",
}
FAULTS = ("staging.orphan", "staged.orphan", "staging.die", "staged.die", "staged.fail")


def main(which: str, faults: str) -> dict[str, object]:
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    folder = Path(faults)
    try:
        return {"steps": steps, "speculation": speculation}[which](spark, folder)
    finally:
        spark.stop()


def _seq(spark: SparkSession) -> int:
    return spark.sql("SELECT max(seq) FROM shop.system.log").collect()[0][0]


# --- each statement, and what executors suffer


def steps(spark: SparkSession, faults: Path) -> dict[str, object]:
    found: dict[str, object] = {"processes": _processes(spark)}
    for name, statement in STATEMENTS.items():
        spark.sql(statement)
        found[name] = _seq(spark)
    for number, fault in enumerate(FAULTS):
        file = arm(faults, fault)
        spark.sql(_inserts(number, f"repeat('{fault}', 20)"))
        found[fault] = _seq(spark), file.exists()
    file = arm(faults, "staging.die")
    changed = "WHEN MATCHED THEN UPDATE SET v = big.v + 1 WHEN NOT MATCHED THEN INSERT *"
    spark.sql(
        f"MERGE INTO shop.big USING (SELECT id + {ROWS // 2} id, 0L v, 's' s FROM shop.big) x"
        f" ON big.id = x.id {changed}"
    )
    found["changed"] = _seq(spark), file.exists()
    file = arm(faults, "reading.die")
    read = spark.sql("SELECT count(s), count(DISTINCT id), sum(v) FROM shop.big WHERE v >= 0")
    found["reading.die"] = list(read.collect()[0]), file.exists()
    return found | {"last processes": _processes(spark)}


def _inserts(number: int, text: str) -> str:
    first, rows = number * PIECES * ROWS, PIECES * ROWS
    return (
        f"INSERT INTO shop.big SELECT id, id, {text}"
        f" FROM range({first}, {first + rows}, 1, {PIECES})"
    )


def _processes(spark: SparkSession) -> list[list[object]]:
    """Return the Python processes that the tasks of a read have, with their sockets."""

    def served(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            time.sleep(0.2)  # else one executor may take all
        found = [(pid, str(socket_of(pid))) for pid in siblings()]
        yield pa.RecordBatch.from_pylist([{"pid": pid, "path": path} for pid, path in found])

    read = spark.sql("SELECT id FROM shop.t WITH (maxRowsPerTask = 100)")
    rows = read.mapInArrow(served, "pid bigint, path string").distinct().collect()
    return sorted([row.pid, row.path] for row in rows)


# --- two attempts of a task


def speculation(spark: SparkSession, faults: Path) -> dict[str, object]:
    """One attempt waits in the middle of its rows: until it is killed, or the other one begins."""
    found: dict[str, object] = {}
    for number, (name, opens) in enumerate({"killed": False, "racing": True}.items()):
        go = faults / name
        rows = spark.range(number * PIECES * ROWS, (number + 1) * PIECES * ROWS, 1, PIECES)
        frame = rows.selectExpr("id", "id v", f"repeat('{name}', 20) s")
        frame.mapInArrow(_waiting(str(go), opens), frame.schema).writeTo("shop.big").append()
        found[name] = _seq(spark), sorted(each.name for each in faults.glob(f"{name}.*"))
    name, go = "merging", faults / "merging"
    spark.range(0, PIECES * ROWS, 1, PIECES).createOrReplaceTempView("source")
    frame = spark.sql("SELECT id + 30000 id, 1L v, 'x' s FROM source")
    waiting: DataFrame = frame.mapInArrow(_waiting(str(go), True), frame.schema)
    waiting.createOrReplaceTempView("waiting")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    spark.sql(
        "MERGE INTO shop.big USING waiting ON big.id = waiting.id"
        " WHEN MATCHED THEN UPDATE SET v = big.v + waiting.v WHEN NOT MATCHED THEN INSERT *"
    )
    found[name] = _seq(spark), sorted(each.name for each in faults.glob(f"{name}.*"))
    return found


Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _waiting(go: str, opens: bool) -> Work:
    """Rows of which the first attempt of one task waits for a file; the second one may make it.

    The second one waits until the first has begun.
    """

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        is_first = task.attemptNumber() == 0
        is_slow = task.partitionId() == 1
        if is_slow:
            Path(f"{go}.{task.attemptNumber()}").touch()
        while is_slow and not is_first and not Path(f"{go}.0").exists():
            time.sleep(0.05)
        if is_slow and opens and not is_first:
            Path(go).touch()
        for number, batch in enumerate(batches):
            while is_slow and is_first and number == 2 and not Path(go).exists():
                time.sleep(0.05)
            yield batch

    return work


if __name__ == "__main__":
    sys.stdout.write("RESULT " + json.dumps(main(*sys.argv[1:])) + "\n")
