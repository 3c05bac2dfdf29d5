"""Transactions of a joined process: they run where they are, until they need their owner."""
