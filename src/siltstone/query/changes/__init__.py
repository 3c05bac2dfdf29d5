"""Change feeds: row versions over a range of sequence numbers."""
