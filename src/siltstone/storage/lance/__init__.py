"""Lance: the seam's real side; no other room imports lance."""
