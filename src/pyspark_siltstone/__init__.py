"""What Spark looks for: it imports each module called `pyspark_*` and registers its source."""

from siltstone.spark.session.source import SiltstoneSource as DefaultSource

__all__ = ["DefaultSource"]
