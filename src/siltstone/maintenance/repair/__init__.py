"""Repair: verify, quarantine, and versions that other programs appended."""
