"""Commits: the one path by which a write set becomes durable and then visible."""
