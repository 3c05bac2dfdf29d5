"""Catalog: tables and their schemas, and rows as a schema wants them."""
