"""Connections: HTTP/1.1 over a socket, with an end to those that only keep it.

accepted ─▶ waits for a head ─▶ answers ─▶ idle ─▶ waits for the rest of the next head
            └──not whole in time──▶ cut     └──for too long──▶ cut

Above the bound of connections the one that waits longest for a head is cut for the next one. If all
have asked for something, a few more may ask, but only for the health of the server.

What a joined process opens lives with its connection, as its session.

The parser has no bound: what is not body (heads, the framing of chunks, trailers) is
counted here, but for the rest of a piece in which another message ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable
from typing import Any, cast

import httptools
import msgspec
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from siltstone.joined.targets import keep_alive
from siltstone.server.http.policy import ListenerPolicy
from siltstone.server.http.replies import JSON_TYPE, RETRY_AFTER
from siltstone.server.sessions import Session, Sessions
from siltstone.units import require

_LOOKS_PER_HEAD = 10
_PIECE_BYTES = 16 << 10
HEALTH_MAX = 8
"""So many connections above the bound may ask for the health of the server."""
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING_PER_BODY = 8
"""So much is not body for each byte of a body, at most: a chunk of one byte has six."""


class HttpConnection(HttpToolsProtocol):
    """See the module."""

    _timer: asyncio.TimerHandle | None = None
    _asks_health_alone = False
    """It came above the bound, and all others have asked for something."""
    _waits_since = 0.0
    """When the last answer was sent, on the loop's clock."""
    _head_since = -1.0
    """When the watch first saw a piece of the head that it waits for."""
    _is_in_head = False
    """A head has begun and is not whole."""
    _framing = _body = _piece = 0
    """How many bytes of the message are not body, and how many are; those of the piece at hand."""

    def __init__(
        self,
        policy: ListenerPolicy,
        sessions: Sessions,
        submit: Callable[..., object],
        arrived: Callable[[HttpConnection, Any], None],
        **given: Any,
    ) -> None:
        """Begin one connection; `submit` runs in a thread what may wait.

        `arrived` takes each request whose head came, as uvicorn's cycle: see `Arrivals.add`.
        """
        super().__init__(**given)
        self._arrived = arrived
        self._policy, self._sessions, self._submit = policy, sessions, submit
        self._session: Session | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("Any", _Corked(transport, self.loop)))
        self.app_state = {**self.app_state, "connection": self}
        policy, sock = self._policy, transport.get_extra_info("socket")
        self._waits_since = self.loop.time()
        if policy.connections_max is not None and not self._finds_room(policy.connections_max):
            transport.abort()
            return
        with contextlib.suppress(OSError):  # gone already
            # asyncio does it only for sockets that name their protocol, and ours does not.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(sock)
        if policy.header_timeout_s is not None:
            self._watch(policy.header_timeout_s)

    def _finds_room(self, most: int) -> bool:
        """Cut the connection that waits longest for a head, if there are too many; see the module.

        A client sends its head at once: before it is the oldest, `most` others must come.
        """
        around = [
            cast("HttpConnection", each)
            for each in self.connections
            if not each.transport.is_closing()
        ]
        if len(around) <= most:
            return True
        # What is private here is of others of this class.
        silent = [each for each in around if each is not self and each._waits_for_head()]  # noqa: SLF001
        if silent:
            min(silent, key=lambda each: each._waits_since).end()  # noqa: SLF001
            return True
        self._asks_health_alone = True
        return len(around) <= most + HEALTH_MAX

    def end(self) -> None:
        """Cut the connection, once what was written is passed on."""
        cast("_Corked", self.transport).flush()
        self.transport.abort()

    def _waits_for_head(self) -> bool:
        """Say whether nothing was asked yet, or a later head has begun and is not whole."""
        cycle = cast("Any", self.cycle)
        return cycle is None or (self._is_in_head and cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        if self._session is not None:
            self._session.is_closed = True
            # In a thread: what was open may be in use, and the loop never waits.
            with contextlib.suppress(RuntimeError):  # shut down: `close_all` does it
                self._submit(self._sessions.close, self._session)

    def session(self) -> Session:
        """Return the session of a joined process: its transactions live with the connection."""
        if self._session is None:
            self._session = self._sessions.open()
        return self._session

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), _PIECE_BYTES):
            if not self.transport.is_closing():
                self._parse(data[at : at + _PIECE_BYTES])

    def _parse(self, data: bytes) -> None:
        self._framing += len(data)
        self._piece = len(data)
        parser: Any = self.parser
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # we speak nothing else: the request is answered as it is
        except httptools.HttpParserError as error:
            self.send_400_response(f"this is no HTTP request: {error}")
            return
        if self._framing > self._policy.header_bytes_max + _FRAMING_PER_BODY * self._body:
            self.send_400_response("the head of the request is too long")

    def on_message_begin(self) -> None:
        self._is_in_head, self._framing, self._body = True, self._piece, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._framing, self._body = self._framing - len(body), self._body + len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._piece = 0  # it says nothing of how long the next message is
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ARG002
        if self._asks_health_alone:
            cycle.keep_alive = False
            if cycle.scope["path"] != self._policy.health_path:
                self.send_answer(cycle, self._refusal())
                return
        self._arrived(self, cycle)

    def _refusal(self) -> Response:
        text = f"{self._policy.connections_max} connections are open; try again later"
        body = msgspec.json.encode({"error": text, "code": self._policy.busy_code})
        return Response(body, 429, {**RETRY_AFTER}, media_type=JSON_TYPE)

    def begin_task(self, cycle: RequestResponseCycle) -> None:
        """Answer a request in its own task."""
        super()._start_asgi_task(cycle, cast("Any", self.app))

    def send_answer(self, cycle: RequestResponseCycle, response: Response) -> None:
        """Send an answer: in one piece, or in a task if it has many, or the client reads none."""
        if type(response) is not Response or cycle.flow.write_paused:
            super()._start_asgi_task(cycle, cast("Any", response))
            return
        if cycle.disconnected:
            return
        head, values = [STATUS_LINE[response.status_code]], list[bytes]()
        is_closed = False
        for name, value in response.raw_headers:
            head += (name, b": ", value, b"\r\n")
            values.append(value)
            is_closed |= name == b"connection" and value == b"close"
        require(_CONTROL.search(b"".join(values)) is None, "a header with more than one line")
        if is_closed:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            head.append(b"connection: close\r\n")
        head.append(b"\r\n")
        if cycle.scope["method"] != "HEAD":
            head.append(bytes(response.body))
        cycle.response_started = cycle.response_complete = True
        self.transport.write(b"".join(head))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        cycle.on_response = _nothing  # it refers to us, and we to the cycle

    def on_response_complete(self) -> None:
        # Without uvicorn's timer, which is one for each request: `_watch` ends idle connections.
        self._waits_since = self.loop.time()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def _watch(self, head_s: float) -> None:
        """Cut the connection once it was waited for too long; look again until then.

        To look costs requests nothing, to hear of each byte would.
        """
        if self._session is not None or self.transport.is_closing():
            return
        left = self._left(head_s, self.loop.time())
        if left > 0:
            again = min(left, head_s / _LOOKS_PER_HEAD)
            self._timer = self.loop.call_later(again, self._watch, head_s)
        else:
            self.transport.abort()

    def _left(self, head_s: float, now: float) -> float:
        """Return how many seconds it may go on to wait."""
        cycle = cast("Any", self.cycle)
        if cycle is None:  # nothing was asked yet: no reason to wait for long
            return self._waits_since + head_s - now
        if not cycle.response_complete:
            return head_s
        if not self._is_in_head:
            return self._waits_since + self._policy.idle_timeout_s - now
        if self._head_since < self._waits_since:
            self._head_since = now
        return self._head_since + head_s - now

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or has too long a head, in the form of every refusal."""
        body = msgspec.json.encode({"error": msg, "code": self._policy.bad_request_code})
        head = (
            f"HTTP/1.1 400 Bad Request\r\ncontent-type: {JSON_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def _nothing() -> None:
    pass


class _Corked:
    """A transport that sends what was written in one turn of the loop in one piece.

    The head of an answer and its body would be two system calls, and two packets.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._written: list[bytes] = []
        # Asked for at each request: found without a way through `__getattr__`.
        self.is_closing, self.get_extra_info = transport.is_closing, transport.get_extra_info
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._written:
            self._loop.call_soon(self.flush)
        self._written.append(data)

    def flush(self) -> None:
        """Pass on at once what was written."""
        written, self._written = self._written, []
        if written:
            self._transport.write(b"".join(written))

    def close(self) -> None:
        self.flush()
        self._transport.close()
