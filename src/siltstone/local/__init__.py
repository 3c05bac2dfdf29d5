"""Local: a store that this process opened itself, as its owner or to read it."""
