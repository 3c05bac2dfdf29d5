"""Scans cut into tasks that any process can read."""
