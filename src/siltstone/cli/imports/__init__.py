"""Imports: `create --from` and `append`: sources of rows, read in parts, committed in chunks."""
