"""What "nothing changed" means: the seq, the tags, the tables and every row are as before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import siltstone as st

SMALL = {"segment_bytes": 65536, "background": False}
MANY = 600
"""More rows than travel as tuples: they are one Arrow batch in the log."""


def connect(path: Path, **options: object) -> st.Store:
    """Open a store that does nothing unasked, with log segments that are made fast."""
    return st.connect(path, **{**SMALL, **options})


def contents(store: st.Store) -> dict[str, object]:
    """Return all that a user can see: the seq, and per table its columns and rows, bit for bit."""
    tables: dict[str, object] = {"seq": store.seq, "tags": store.tags()}
    for name in store.tables():
        table = store[name]
        rows = sorted(map(repr, table.to_arrow().to_pylist()))
        tables[name] = (table.schema, table.primary_key, table.count(), rows)
    return tables


@contextmanager
def refused(
    store: st.Store,
    error: type[st.SiltstoneError] = st.RequestError,
    match: str | None = None,
    *,
    lines_max: int = 1,
) -> Iterator[None]:
    """The block is refused with one clear sentence, and nothing changed."""
    before = contents(store)
    with pytest.raises(error, match=match) as found:
        yield
    message = str(found.value)
    assert message, "no message"
    assert message.count("\n") < lines_max, message
    assert len(message) < 700, message
    assert contents(store) == before
