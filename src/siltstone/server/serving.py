"""Serving: a uvicorn server in a thread that tells when it is ready, and is stopped from any."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn


class Serving(uvicorn.Server):
    """Tells when it is ready, and sweeps now and then."""

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        sweep: Callable[[], Any],
        every_s: float,
        graceful_s: float,
    ) -> None:
        super().__init__(config)
        self.is_ready = threading.Event()
        self._stopping = asyncio.Event()
        self._sweep, self._every_s, self._graceful_s = sweep, every_s, graceful_s

    def stop(self) -> None:
        """Stop, from any thread."""
        self.should_exit = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def main_loop(self) -> None:
        await self._stopping.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self._sweeping = self._loop.create_task(self._sweep_for_ever())
        self.is_ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._sweeping.cancel()
        for server in self.servers:
            server.close()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=self._graceful_s)
        # Whoever does not read what was sent would be waited for; and a socket that stays open
        # would be waited on.
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
        await super().shutdown(sockets)

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self._sweep()


# A library says nothing by itself: what fails here is an answer, or in our own log (`answers`).
logging.getLogger("uvicorn").addHandler(logging.NullHandler())
