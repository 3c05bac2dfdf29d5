"""Fold: what merges write, and what readers notice of them; `python -m bench.fold --help`."""
