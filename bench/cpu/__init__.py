"""CPU: what a commit, a read and a request cost of processor time, and by how many calls."""
