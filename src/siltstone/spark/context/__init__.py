"""Context: what all of Spark's processes share: the application, its stores, options, columns."""
