"""Open: how a store comes up and goes down in this process, and who holds a handle on it."""
