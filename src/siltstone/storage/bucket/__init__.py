"""The mirror of a store in a bucket, as a store that is read."""
