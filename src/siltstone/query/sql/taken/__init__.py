"""What is taken out of the text of a statement before DuckDB reads it."""
