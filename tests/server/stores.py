"""Stores that are served and joined in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import siltstone as st
from siltstone.joined.store import JoinedStore
from siltstone.server.endpoint import Endpoint


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


@contextmanager
def endpoint_of(owner: st.Store, address: Path, **options: object) -> Iterator[Endpoint]:
    """Yield an endpoint of its own, with bounds that a test chooses."""
    endpoint = Endpoint(owner, owner._parts, address, **options)
    try:
        yield endpoint
    finally:
        endpoint.close()
