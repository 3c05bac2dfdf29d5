"""Reach: a store and its bucket, on a real server, with some time added to each request."""
