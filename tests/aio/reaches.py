"""Reaches: an awaited store of this process, of its owner's socket, and of a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import siltstone as st
from siltstone import aio
from siltstone.aio.threads import Threads
from siltstone.joined.store import JoinedStore
from siltstone.options import Options

REACHES = ("owned", "joined", "served")
SCHEMA = {"id": "int64", "n": "int64"}


@asynccontextmanager
async def reached(reach: str, folder: Path, threads_max: int = 4) -> AsyncGenerator[aio.Store]:
    """Yield a store with the empty table `rows`, awaited in the way that `reach` names."""
    path = folder / "shop"
    if reach == "owned":
        async with aio.connect(path, background=False, threads_max=threads_max) as db:
            await db.create_table("rows", SCHEMA, "id")
            yield db
        return
    with st.connect(path, background=False) as owner:
        owner.create_table("rows", SCHEMA, "id")
        if reach == "served":
            async with aio.connect(owner.serve(port=0).url, threads_max=threads_max) as db:
                yield db
            return
        near = JoinedStore(path, str(owner.serve_local()), Options())
        async with aio.Store(near, Threads(threads_max)) as db:
            yield db
