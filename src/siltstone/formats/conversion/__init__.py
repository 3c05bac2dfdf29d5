"""What callers give as rows, made rows of a table: dicts and Arrow batches."""
