"""Rows in the order of their keys: which part of them, where they are, and the rows."""
