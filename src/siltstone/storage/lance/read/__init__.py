"""Versions opened at their pins, and the files that they need."""
