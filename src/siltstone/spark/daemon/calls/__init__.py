"""Calls: the procedures of a catalog, and the tables that tell what a store knows of itself."""
