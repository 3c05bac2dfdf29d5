"""Processes: several processes work on one store: one owns it, the others join it."""
