"""Stores that are served and joined in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import siltstone as st
from siltstone.joined.store import JoinedStore


def opened(path: Path) -> st.Store:
    return st.connect(path, segment_bytes=65536, background=False)


@contextmanager
def served(path: Path) -> Iterator[tuple[st.Store, JoinedStore]]:
    """Yield an owner and a store that joined it."""
    with opened(path) as owner:
        owner.serve_local()
        joined = st.connect(path, join=True)
        assert isinstance(joined, JoinedStore)
        with joined:
            yield owner, joined
