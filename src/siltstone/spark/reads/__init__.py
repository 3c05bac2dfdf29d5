"""Reads: rows of tables for Spark, by `format("siltstone")` and by the catalog."""
