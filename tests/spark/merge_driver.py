"""A driver of its own that merges into a store, in small tasks: merge_driver.py STORE."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from siltstone.spark import session
from tests.spark.stream_driver import SHORT_LIVED

ROWS = 60
STATEMENT = """
    MERGE INTO {shop}.o WITH (token = 'a:1') USING (SELECT id FROM range(0, {rows}, 1, 2)) x
    ON o.id = x.id
    WHEN MATCHED AND o.id < 10 THEN DELETE
    WHEN MATCHED THEN UPDATE SET v = o.v + 1
    WHEN NOT MATCHED THEN INSERT (id, v) VALUES (x.id, 100)
"""


def merge(spark: SparkSession, shop: str) -> None:
    """Run the statement."""
    spark.sql(STATEMENT.format(shop=shop, rows=ROWS))


def main(store: str) -> None:
    spark = session(SHORT_LIVED, master="local[2]", stores={"shop": store})
    spark.sparkContext.setLogLevel("OFF")
    merge(spark, "shop")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
