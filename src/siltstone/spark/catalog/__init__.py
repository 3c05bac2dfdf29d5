"""Catalog: what a Spark session needs for `spark.sql("select .. from shop.orders")` (ADR 91)."""
