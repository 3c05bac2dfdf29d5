"""Exits: processes that end without `close()`, many times and beside busy ones."""
