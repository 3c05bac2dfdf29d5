"""Writes: transactions and what they stage before they commit."""
