"""Compaction: optimize writes many small files again as few large ones."""
