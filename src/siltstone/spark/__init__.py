"""Spark: bulk reads and writes of stores, through PySpark alone; no jar.

`session()` starts a Spark that knows `format("siltstone")`, `register(spark)` tells another about
it. See docs/spark.md.
"""

try:
    from siltstone.spark.maintenance import index, merge, optimize
    from siltstone.spark.session import register, session
    from siltstone.spark.snapshots import snapshot
    from siltstone.spark.transactions import transaction
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "pyspark":
        raise
    text = "siltstone.spark needs the extra `spark`: pip install 'siltstone[spark]'"
    raise ModuleNotFoundError(text, name=error.name) from error

__all__ = ["index", "merge", "optimize", "register", "session", "snapshot", "transaction"]
