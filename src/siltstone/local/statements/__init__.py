"""Statements of SQL that write, as they run in a transaction of this process."""
