"""Types of columns: what a type lies in, and which of them a table cannot have."""
