"""Garbage collection: vacuum, and the files that no record, lease or tag names."""
