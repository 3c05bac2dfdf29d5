"""Search: the nearest vectors and words of texts; `python -m bench.search --help`."""
