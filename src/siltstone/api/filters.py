"""Filters: whether a text that was given as something else is one."""

from siltstone.engine.filter.filters import compares_columns

__all__ = ["compares_columns"]
