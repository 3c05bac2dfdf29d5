"""Joined: a store that another process owns, with the same faces, through the owner's socket."""
