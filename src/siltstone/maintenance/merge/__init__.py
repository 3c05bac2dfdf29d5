"""Merge: history becomes base."""
