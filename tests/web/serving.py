"""Applications that a real uvicorn serves, in a thread of the test."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn


@contextmanager
def served(app: Any) -> Generator[str]:
    """Yield the URL of an application. The socket listens before, so nobody waits for a start."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(app, log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def posted(url: str, count: int, path: str = "/orders", **options: Any) -> list[httpx.Response]:
    """Send so many requests at once; return their answers."""

    async def all_at_once() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=count)
        async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
            return await asyncio.gather(*(client.post(path, **options) for _ in range(count)))

    return asyncio.run(all_at_once())
