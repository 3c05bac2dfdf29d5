"""Server: the store for other processes, as HTTP with Arrow bodies (extra `server`)."""
