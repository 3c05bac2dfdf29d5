"""A driver on a cluster that has the bucket alone: `python -m tests.reach.cluster_driver JSON`.

The JSON says `master`, `url` and a `seq`, of which a vacuum may not take the files. Prints as JSON
in which homes tasks ran, the rows at the seq, and what was seen of the newest ones.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from siltstone.spark import session
from tests.spark.conftest import SETTINGS

SEEN, LOOKS_MAX = 3, 500
"""So many states of the store are seen, in so many looks at most."""
CLUSTER = {
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


def main(given: dict[str, Any]) -> dict[str, object]:
    stores = {"shop": given["url"]}
    spark = session({**SETTINGS, **CLUSTER}, master=given["master"], stores=stores)
    spark.sparkContext.setLogLevel("FATAL")
    try:
        return {
            "homes": _homes(spark, given),
            "before": _rows_at(spark, given),
            "newest": _newest(spark),
            "after": _rows_at(spark, given),
        }
    finally:
        spark.stop()


def _homes(spark: SparkSession, given: dict[str, Any]) -> list[list[Any]]:
    """Return where tasks ran that read half of a table each, at the same time, and their rows."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pylist([{"home": os.environ["HOME"], "n": count}])

    half = f"WITH (maxRowsPerTask = {given['half']})"
    read = spark.sql(f"SELECT id FROM shop.big VERSION AS OF {given['seq']} {half}")
    found = read.mapInArrow(work, "home string, n bigint", barrier=True).collect()
    return sorted([row.home, row.n] for row in found)


def _rows_at(spark: SparkSession, given: dict[str, Any]) -> list[list[Any]]:
    both = "SELECT id, v FROM shop.keyed VERSION AS OF {seq} UNION ALL"
    both += " SELECT a, 'plain' FROM shop.plain VERSION AS OF {seq}"
    return sorted(list(row) for row in spark.sql(both.format(**given)).collect())


def _newest(spark: SparkSession) -> list[list[int]]:
    """Return how many rows two tables have, in one statement, until a few states were seen."""
    found: list[list[int]] = []
    both = "(SELECT count(*) FROM shop.keyed WHERE v = 'new'), (SELECT count(*) FROM shop.plain)"
    for _ in range(LOOKS_MAX):
        (row,) = spark.sql(f"SELECT {both}").collect()
        if list(row) not in found:
            found.append(list(row))
        if len(found) == SEEN:
            break
    return found


if __name__ == "__main__":
    sys.stdout.write("RESULT " + json.dumps(main(json.loads(sys.argv[1]))) + "\n")
