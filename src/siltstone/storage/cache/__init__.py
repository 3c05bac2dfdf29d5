"""Cache: files of this user beside all stores, which may be deleted at any time (ADR 100)."""
