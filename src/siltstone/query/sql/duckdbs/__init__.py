"""DuckDBs: the instances that statements run in."""
