"""Frames: what goes over the socket of an owner on this machine, and the client's end of it."""
