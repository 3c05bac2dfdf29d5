"""Levels: where the rows of a store lie when a test reads them."""

from __future__ import annotations

from typing import Literal

import siltstone as st

LEVELS = ("memtable", "history", "base", "mixed")
Level = Literal["memtable", "history", "base", "mixed"]


def at_level(db: st.Store, level: Level) -> None:
    """Bring all rows of a store to a level; "mixed" merges what is there, and leaves what comes."""
    if level != "memtable":
        db.checkpoint()
    if level in {"base", "mixed"}:
        db.merge()
    if level == "mixed":
        one = next(name for name in db.tables() if db[name].primary_key)
        row = db[one].head(1).to_pylist()
        if row:
            db[one].upsert(row)
