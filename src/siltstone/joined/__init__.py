"""Joined: a store that another process owns, with the same API, through the owner's socket."""
