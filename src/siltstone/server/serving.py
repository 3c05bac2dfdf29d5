"""Serving: a uvicorn server in a thread that is begun in time, or given up, and stopped from any.

    made ──start──▶ serves ──stop──▶ ended
              └──it did not begin in time──▶ ended, as soon as it notices

Whoever stops it waits for its end. The child of a fork closes the sockets that it was
given copies of.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any

import uvicorn

from siltstone import threads
from siltstone.errors import UnavailableError

START_TIMEOUT_S = 30.0


class Serving(uvicorn.Server):
    """Serves a socket that listens, and sweeps now and then."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        *,
        name: str,
        sweep: Callable[[], Any],
        every_s: float,
        graceful_s: float,
    ) -> None:
        super().__init__(config)
        self._listener = listener
        self._is_ready = threading.Event()
        self._stopping = asyncio.Event()
        self._sweep, self._every_s, self._graceful_s = sweep, every_s, graceful_s
        self._thread = threading.Thread(target=self._serve_all, name=name, daemon=True)
        _servings.add(self)

    def start(self, address: object) -> None:
        """Begin: `address` answers on return.

        Raises:
            UnavailableError: The system gives no thread, or it did not begin in time: it has ended.
        """
        threads.start(self._thread)
        is_ready = False
        try:
            is_ready = self._is_ready.wait(START_TIMEOUT_S)
        finally:
            if not is_ready:
                self.stop()
        if not is_ready:
            raise UnavailableError(f"{address} did not begin to answer")

    def _serve_all(self) -> None:
        self.run(sockets=[self._listener])

    def stop(self) -> None:
        """Stop, from any thread, and wait for the end; a second time does nothing."""
        # Said before the loop is looked for: one that is not there yet will find it said.
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def abandon(self) -> None:
        """In the child of a fork: close the copied sockets, or clients would wait on them."""
        with contextlib.suppress(OSError):
            os.close(self._listener.detach())
        for connection in self.server_state.connections:
            copied = connection.transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                if copied is not None:  # else TLS is just over, and its socket closed
                    os.close(copied.fileno())

    async def main_loop(self) -> None:
        await self._stopping.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        if self.should_exit:  # given up before it began
            return
        await super().startup(sockets)
        self._sweeping = self._loop.create_task(self._sweep_for_ever())
        self._is_ready.set()

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


_servings: weakref.WeakSet[Serving] = weakref.WeakSet()


def _abandon_in_child() -> None:
    for server in list(_servings):
        server.abandon()


os.register_at_fork(after_in_child=_abandon_in_child)

# A library says nothing by itself: what fails here is an answer, or in our own log (`answers`).
logging.getLogger("uvicorn").addHandler(logging.NullHandler())
