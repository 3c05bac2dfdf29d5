"""Statements of SQL that write: taken apart here, run in a transaction by `local.sql_writes`."""
