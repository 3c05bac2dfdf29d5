"""Garbage collection: vacuum, and what no record, lease or tag names."""
