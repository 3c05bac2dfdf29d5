"""The log of a store as objects of a bucket."""
