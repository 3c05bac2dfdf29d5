"""Daemon: the Python process of a JVM of Spark, which decides all that the catalog does (ADR 91).

`python -m siltstone.spark.daemon SOCKET` serves until its stdin ends.
"""
