"""The manifest: the chain of records, ownership of a store, and its format's version."""
