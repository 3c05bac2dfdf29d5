"""Stores that are served and joined in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from siltstone.options import resolve
from siltstone.server.rpc.server import LocalServer


def opened(path: Path, **options: Any) -> st.Store:
    return st.connect(path, segment_bytes=65536, background=False, **options)


@contextmanager
def served(path: Path) -> Iterator[tuple[st.Store, JoinedStore]]:
    """Yield an owner and a store that joined it."""
    with opened(path) as owner, joined_to(owner) as joined:
        yield owner, joined


asking = pytest.mark.parametrize("way", ["asking"], indirect=True)
"""For what happens only where the owner is asked for all that is read; see `conftest`."""
DOORS = ("owner", "socket", "http")


@contextmanager
def behind(door: str, path: Path) -> Iterator[st.Store]:
    """Yield a store as its owner has it, or as one who joined it by a socket or a URL."""
    with opened(path) as owner, ExitStack() as held:
        if door == "owner":
            yield owner
        elif door == "socket":
            yield held.enter_context(joined_to(owner))
        else:
            yield held.enter_context(st.connect(owner.serve(port=0).url))


def joined_to(owner: st.Store) -> JoinedStore:
    """Join an owner of this process as another would; `connect` gives another handle on it."""
    return JoinedStore(owner.path, str(owner.serve_local()), resolve(owner.path, {}))


def eventually(claim: Callable[[], bool]) -> None:
    """Wait for what the owner does by itself once it hears that a connection ended."""
    deadline = time.monotonic() + 30
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def endpoint_of(owner: st.Store, address: Path, **options: object) -> Iterator[LocalServer]:
    """Yield an endpoint of its own, with bounds that a test chooses."""
    endpoint = LocalServer(owner, owner._parts, address, **options)
    try:
        yield endpoint
    finally:
        endpoint.close()
