"""Recovery: a manifest record and the log above it become a view again."""
