"""SQL by DuckDB over the tables of one snapshot."""
