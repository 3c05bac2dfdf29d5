"""Corruption: every file of the golden stores damaged in every way, one damage at a time.

A store with one damaged file gives the answers that it gave whole, or a CorruptionError that names
a file of the same kind; it never gives other answers, never hangs, never ends the process. All
cases take days (each opens a store and reads all of it), so they come in an order drawn from a
seed, for as long as is asked for: `python -m proof.corruption --minutes 8`. `damages` are the
cases, `reader` is the process that looks, `trial` judges what it said.
"""
