"""Spark: bulk reads and writes of stores, through PySpark alone; no jar.

`session()` starts a Spark that knows `format("siltstone")`, `register(spark)` tells another about
it. See docs/spark.md.
"""

from siltstone.spark.maintenance import merge, optimize
from siltstone.spark.session import register, session
from siltstone.spark.snapshots import snapshot
from siltstone.spark.transactions import transaction

__all__ = ["merge", "optimize", "register", "session", "snapshot", "transaction"]
