"""What one process has: deadlines, threads, memory, optional packages, tries and their turns."""
