"""Streams: the changes of a table, as a stream and as a range."""
