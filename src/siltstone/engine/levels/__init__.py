"""Levels: where the row versions of a table lie, newest first, and which of them are visible."""
