"""Ships the log of a store into a bucket."""
