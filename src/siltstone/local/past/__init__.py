"""Two states of a store: where a moment is, what differs, and how a table is put back."""
