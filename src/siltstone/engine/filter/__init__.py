"""Filters: SQL text or Arrow expressions, compiled once, for every level of a read."""
