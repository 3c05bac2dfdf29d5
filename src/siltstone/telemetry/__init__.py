"""What a process tells of itself: times of its work, lines of the log, spans."""
