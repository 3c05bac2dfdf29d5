"""Siltstone on Spark beside Parquet, raw Lance and Delta, in one session."""
