"""Connections: HTTP/1.1 over TCP, with an end to those that only keep a socket.

accepted ─▶ waits for a request ─▶ answers ─▶ waits for the next one
            └──nothing whole came in time──▶ closed
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from siltstone.joined.targets import keep_alive
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.refusals import JSON_TYPE, Code
from siltstone.server.sessions import Session, Sessions


class Connection(H11Protocol):
    """See the module."""

    limits: Limits
    sessions: Sessions
    submit: Callable[..., object]
    session: Session | None = None
    """What a joined process has on it, once it asked for something."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("Any", _Corked(transport, self.loop)))
        self.app_state = {**self.app_state, "connection": self}
        if len(self.connections) > self.limits.connections_max:
            transport.abort()
            return
        with contextlib.suppress(OSError):  # gone already
            keep_alive(transport.get_extra_info("socket"))
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)
        if self.session is not None:
            self.session.is_closed = True
            # In a thread: what was open may be in use, and the loop waits for nobody.
            with contextlib.suppress(RuntimeError):  # shut down: `close_all` does it
                self.submit(self.sessions.close, self.session)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Have a deadline as long as no request is inside; bytes alone do not move it."""
        cycle = cast("Any", self.cycle)
        is_inside = cycle is not None and not cycle.response_complete
        if is_inside or self.session is not None:
            self._forget()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.limits.header_timeout_s, self._late)

    def joined(self) -> Session:
        """Return the session of a joined process: its transactions live with the connection."""
        if self.session is None:
            self.session = self.sessions.open()
        return self.session

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        cycle = cast("Any", self.cycle)
        if cycle is None or cycle.response_complete:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or has too long a head, in the form of every refusal."""
        body = msgspec.json.encode({"error": msg, "code": int(Code.INVALID_INPUT)})
        head = (
            f"HTTP/1.1 400 Bad Request\r\ncontent-type: {JSON_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class _Corked:
    """A transport that sends what was written in one turn of the loop in one piece.

    The head of an answer and its body would be two system calls, and two packets.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(data)

    def _flush(self) -> None:
        written, self._written = self._written, []
        if written:
            self._transport.write(b"".join(written))

    def close(self) -> None:
        self._flush()
        self._transport.close()


def connections(
    limits: Limits, sessions: Sessions, submit: Callable[..., object]
) -> type[asyncio.Protocol]:
    """Return the protocol of one connection; `submit` runs in a thread what may wait."""

    class Limited(Connection):
        pass

    Limited.limits, Limited.sessions, Limited.submit = limits, sessions, staticmethod(submit)
    return Limited
