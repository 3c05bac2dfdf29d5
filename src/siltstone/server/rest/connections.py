"""Connections: HTTP/1.1 over TCP, with an end to those that only keep a socket.

accepted ─▶ waits for a request ─▶ answers ─▶ waits for the next one
            └──nothing whole came in time──▶ closed
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from siltstone.server.rest.limits import Limits
from siltstone.server.rest.refusals import JSON_TYPE, Code


class Connection(H11Protocol):
    """See the module."""

    limits: Limits
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "connection": self}
        if len(self.connections) > self.limits.connections_max:
            transport.abort()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Have a deadline as long as no request is inside; bytes alone do not move it."""
        cycle = cast("Any", self.cycle)
        if cycle is not None and not cycle.response_complete:
            self._forget()
        elif self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.limits.header_timeout_s, self._late)

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


def connections(limits: Limits) -> type[asyncio.Protocol]:
    """Return the protocol of one connection, within the limits."""

    class Limited(Connection):
        pass

    Limited.limits = limits
    return Limited
