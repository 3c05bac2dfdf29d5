"""Objects of a bucket."""
