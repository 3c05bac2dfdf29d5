"""Soak: everything at once over one store, for as long as one likes."""
