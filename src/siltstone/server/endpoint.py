"""Endpoint: the socket on which the owner of a store answers other processes of the same user.

    named in LOCK (`Store.serve_local`) ─▶ bind ─▶ mode 0600 ─▶ listen ─▶ serve in a thread
    close: stop ─▶ roll back what is open ─▶ remove the socket

The socket of an owner that was killed is replaced by the next one, who holds the flock. Whoever
connects must be the same user (SO_PEERCRED), whatever the modes say. Lock: none; one thread opens,
one closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from siltstone.errors import RequestError, UnavailableError
from siltstone.joined import protocol
from siltstone.server.app import REQUESTS_MAX, Desk, app_of, hello_of
from siltstone.server.calls import Calls
from siltstone.server.served import Served
from siltstone.server.serving import Serving
from siltstone.server.sessions import IDLE_S, Session, Sessions
from siltstone.store import Store
from siltstone.wiring import Parts

THREADS_MAX = 32
GRACEFUL_S = 2
"""How long a close waits for answers on their way; what is cut off is in doubt, or unavailable."""
_FOREVER_S = 10 * 365 * 86_400
_CREDENTIALS = struct.Struct("3i")


class Endpoint:
    """See the module."""

    def __init__(
        self,
        db: Store,
        parts: Parts,
        address: Path,
        *,
        sessions: Sessions | None = None,
        idle_s: float = IDLE_S,
        user: int | None = None,
        body_bytes_max: int = protocol.BODY_BYTES_MAX,
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        """Listen and serve; `address` answers from now on.

        Raises:
            UnavailableError: The socket cannot be made, or does not begin to answer.
        """
        served = Served(db, parts)
        self.sessions = sessions or Sessions(served.reserve, idle_s=idle_s)
        self._reservations = parts.reservations
        self._executor = ThreadPoolExecutor(THREADS_MAX, "siltstone-server")
        identity = parts.files.identity(db.path)
        epoch = parts.core.state().view.record.epoch
        self._desk = Desk(
            Calls(served, self.sessions),
            lambda: hello_of(str(db.path), epoch, identity, body_bytes_max),
            self._executor,
            requests_max=requests_max,
            body_bytes_max=body_bytes_max,
        )
        self.address = address
        self._socket = _listening(address)
        user = os.geteuid() if user is None else user
        self._server = Serving(
            uvicorn.Config(
                app_of(self._desk),
                http=_connections(self.sessions, self._executor.submit, user),
                loop="asyncio",
                lifespan="off",
                ws="none",
                proxy_headers=False,
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=_FOREVER_S,
                timeout_graceful_shutdown=GRACEFUL_S,
            ),
            self._socket,
            name="siltstone-endpoint",
            sweep=self._sweep,
            every_s=max(0.05, min(idle_s / 4, 5.0)),
            graceful_s=GRACEFUL_S,
        )
        self._reservations.add(self.sessions.spend)
        try:
            self._server.start(address)
        except BaseException:  # interrupted, too
            self._give_up()
            raise

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self.sessions.sweep)

    def close(self) -> None:
        """Stop answering; roll back what is open on connections. A second time does nothing."""
        self._desk.is_closing = True
        self._server.stop()
        self._give_up()

    def _give_up(self) -> None:
        self.sessions.close_all()
        self._executor.shutdown()
        self._reservations.remove(self.sessions.spend)
        self._socket.close()
        with contextlib.suppress(OSError):
            self.address.unlink()


def _connections(
    sessions: Sessions, submit: Callable[..., object], user: int
) -> type[asyncio.Protocol]:
    class Connection(H11Protocol):
        """One connection: a session from its first byte to its end."""

        session: Session

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.session = sessions.open()
            peer = _peer(transport.get_extra_info("socket"))
            if peer != user:
                self.session.refusal = RequestError(
                    f"the store is served to user {user}, not to user {peer}"
                )
            self.app_state = {**self.app_state, "session": self.session}

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.session.is_closed = True
            # In a thread: what was open may be in use, and the loop waits for nobody.
            with contextlib.suppress(RuntimeError):  # shut down: `close_all` does it
                submit(sessions.close, self.session)

    return Connection


def _peer(connection: socket.socket) -> int:
    """Return the user at the other end, as the kernel noted it at `connect`."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return cast("int", _CREDENTIALS.unpack(data)[1])


def _listening(address: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            address.unlink()  # of an owner that was killed: we hold the flock
        made.bind(str(address))
        address.chmod(0o600)
        made.listen(128)
    except OSError as error:
        made.close()
        raise UnavailableError(f"cannot listen on {address}: {error}") from error
    return made
