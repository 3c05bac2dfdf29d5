"""Writes: rows of frames and streams on their way to one commit, and maintenance on executors."""
