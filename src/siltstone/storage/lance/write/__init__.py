"""New versions: rows, compacted parts, index segments, adopted parts."""
