"""Server: a listening socket, its thread, the threads that do the work, and their end.

    made ──start──▶ answers ──close──▶ closed: stop, answer what is inside, roll back what is open
              └──it did not begin in time──▶ closed, as soon as it notices

`close` waits for the end. The child of a fork closes the sockets that it was given copies of.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, cast

import uvicorn

from siltstone.errors import UnavailableError
from siltstone.process import threads
from siltstone.server.http.certificate import Certificate
from siltstone.server.http.handover import HandOver
from siltstone.server.http.policy import ListenerPolicy
from siltstone.server.http.router import Router
from siltstone.server.sessions import Sessions

START_TIMEOUT_S = 30.0
_TURNS_TO_MAKE = 3
"""So many turns of the loop after a socket is accepted, asyncio has made its connection."""
_FOREVER_S = 10 * 365 * 86_400


class SpentIds(Protocol):
    """What is asked to spend an id, whichever server gave it out; `Parts.reservations` is one."""

    def add(self, spend: Callable[[str], bool], /) -> None: ...

    def remove(self, spend: Callable[[str], bool], /) -> None: ...


class HttpServer:
    """See the module. One thread opens, one closes."""

    def __init__(
        self,
        address: object,
        router: Router,
        listener: socket.socket,
        policy: ListenerPolicy,
        executor: ThreadPoolExecutor,
        sessions: Sessions,
        *others: Sessions,
        connection: Callable[[HandOver], Callable[..., asyncio.Protocol]],
        reservations: SpentIds,
        at_end: Callable[[], object],
        certificate: Certificate | None = None,
    ) -> None:
        """Begin to serve `router` on a socket that listens: `address` answers on return.

        Args:
            executor: Runs what may wait; it is shut down with the server.
            connection: Returns what makes the protocol of a connection that was accepted.
            sessions: Of the connections; these and `others` are swept and closed.
            reservations: Where the ids that connections hold are spent when a client asks for one.
            at_end: Called when the server is closed, perhaps more than once.

        Raises:
            UnavailableError: The system gives no thread, or it did not begin in time: it is
                closed.
        """
        self._router, self._listener, self._executor = router, listener, executor
        self._sessions = (sessions, *others)
        self._reservations, self._at_end = reservations, at_end
        reservations.add(sessions.spend)
        self._handover = HandOver()
        config = uvicorn.Config(
            router,
            http=cast("Any", connection(self._handover)),
            interface="asgi3",
            loop="asyncio",
            lifespan="off",
            ws="none",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_FOREVER_S,
            timeout_graceful_shutdown=2,
        )
        try:
            config.load()
            config.ssl = certificate.listening if certificate else None
            self.thread = ServerThread(config, listener, policy, self._handover, self._sweep)
            self.thread.start(address)
        except BaseException:  # interrupted, too
            self._give_up()
            raise

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for sessions in self._sessions:
            await loop.run_in_executor(self._executor, sessions.sweep)

    def close(self) -> None:
        """Stop: requests inside are answered, open transactions rolled back. Again: nothing."""
        for pipeline in self._router.pipelines:
            pipeline.is_closing = True
        self.thread.stop()
        self._give_up()

    def _give_up(self) -> None:
        for sessions in self._sessions:
            sessions.close_all()
        self._executor.shutdown()
        self._handover.close()
        for pipeline in self._router.pipelines:
            if pipeline.lane is not None:
                pipeline.lane.executor.shutdown()
        self._reservations.remove(self._sessions[0].spend)
        self._listener.close()
        self._at_end()


class ServerThread(uvicorn.Server):
    """uvicorn in its own thread, begun in time or given up, and stopped from any."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        policy: ListenerPolicy,
        handover: HandOver,
        sweep: Callable[[], Awaitable[None]],
    ) -> None:
        """Serve `listener`, and sweep now and then."""
        super().__init__(config)
        self._listener = listener
        self._is_ready = threading.Event()
        self._stopping = asyncio.Event()
        self._sweep, self._policy, self._handover = sweep, policy, handover
        given = {"sockets": [listener]}
        self._thread = threading.Thread(None, self.run, policy.name, kwargs=given, daemon=True)
        _threads.add(self)

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
        await self._stop_accepting()
        await self._answers(self._policy.graceful_s)
        # Else we would wait for a client that does not read what was sent, and a client would wait
        # on a socket that stays open. An answer of this turn of the loop is not sent yet.
        for connection in list(self.server_state.connections):
            cast("Any", connection).end()  # cut, once what was written is passed on
        await asyncio.sleep(0)
        await super().shutdown(sockets)

    async def _stop_accepting(self) -> None:
        """Close the listening sockets, once what they accepted is a connection that can be ended.

        `Server.close` alone would lose a socket that was accepted just before: `Server._attach`
        fails, and nobody closes it (asyncio of CPython 3.11).
        """
        assert self._loop is not None
        for server in self.servers:
            for listening in server.sockets:
                self._loop.remove_reader(listening.fileno())
        for _ in range(_TURNS_TO_MAKE):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()

    async def _answers(self, graceful_s: float) -> None:
        """Wait for answers on their way, but not for ever; what a thread ends may be sent long."""
        assert self._loop is not None
        end_s = self._loop.time() + graceful_s
        while (left_s := end_s - self._loop.time()) > 0:
            on_their_way = self.server_state.tasks
            if self._handover.is_busy:
                on_their_way = {self._loop.create_task(self._handover.idle())}
            if not on_their_way:
                return
            await asyncio.wait(on_their_way, timeout=left_s)

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._policy.sweep_every_s)
            await self._sweep()


_threads: weakref.WeakSet[ServerThread] = weakref.WeakSet()


def _abandon_in_child() -> None:
    for server in list(_threads):
        server.abandon()


os.register_at_fork(after_in_child=_abandon_in_child)

# A library says nothing by itself: what fails here is an answer, or in our own log (`replies`).
logging.getLogger("uvicorn").addHandler(logging.NullHandler())
