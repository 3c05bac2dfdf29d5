"""The write-ahead log: segments, appends, recovery, and readers that follow it."""
