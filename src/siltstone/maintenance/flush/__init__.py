"""Flush: sealed memtables become history by a checkpoint."""
