"""Indexes: declared by a record, built in the background, changing no answer."""
