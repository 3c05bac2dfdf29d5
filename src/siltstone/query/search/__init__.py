"""Search: the rows of a table with the nearest vectors, at one seq."""
