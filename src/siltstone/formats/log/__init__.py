"""The log: how frames lie in a segment, and the group of commits that a frame carries."""
