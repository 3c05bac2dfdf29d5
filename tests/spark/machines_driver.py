"""A driver of a cluster of two machines: `python -m tests.spark.machines_driver MASTER PATH URL`.

It prints one JSON object: which hosts ran tasks, and what it read, by the path and by the URL.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from siltstone.spark import session, snapshot
from tests.spark.conftest import SETTINGS

SMALL = {
    "spark.executor.memory": "512m",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


def hosts(spark: SparkSession) -> list[str]:
    """Return the names of the machines that run tasks."""

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [platform.node()]})

    found = spark.range(0, 8, 1, 8).mapInArrow(named, "name string").collect()
    return sorted({row.name for row in found})


def main(master: str, path: str, url: str) -> None:
    spark = session({**SETTINGS, **SMALL}, master=master)
    spark.sparkContext.setLogLevel("FATAL")
    found: dict[str, object] = {"hosts": hosts(spark), "driver": platform.node()}
    for first, uri in ((100, path), (200, url)):
        rows = spark.range(first, first + 40, 1, 4).selectExpr("id", "concat('v', id) v")
        rows.write.format("siltstone").mode("append").options(uri=uri, table="t").save()
        with snapshot(spark, uri) as shop:
            rows_read = sorted(row.id for row in shop["t"].collect())
            found["path" if uri == path else "url"] = rows_read
    spark.stop()
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
