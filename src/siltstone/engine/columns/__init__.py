"""Columns in memory: as images for scans, as matrices and words for searches."""
