"""What Spark looks for: it imports each module called `pyspark_*` and registers its source."""

from siltstone.spark.sessions.source import SiltstoneSource as DefaultSource

__all__ = ["DefaultSource"]
