"""Files: the seam to the file system, checked copies, and syncs of many files."""
