"""Tables: the seam to columnar datasets, the names of their files, and jobs that work on them."""
