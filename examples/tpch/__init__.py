"""TPC-H on Spark and in place: bulk load, refresh stream, row transactions and queries at once."""
