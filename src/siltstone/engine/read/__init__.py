"""Reads: a view is all that exists as one frozen value; a reader answers from it at one seq."""
