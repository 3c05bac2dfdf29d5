"""Peers: one module for each store."""
