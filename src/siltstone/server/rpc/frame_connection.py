"""Frame connection: one connection of a Unix socket that speaks `joined.frames.frame`.

    accepted ─▶ opening ─▶ a request arrives ─▶ whole ─▶ inside ─▶ answered ─▶ the next
                  └──another version, or HTTP──▶ refused in words that it understands, and ended

One request of a connection is inside at a time, until its client took enough of the answer; what it
sends meanwhile is left unread. What its client opens lives with the connection, as its session.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Protocol, cast

import msgspec
from starlette.responses import Response

from siltstone.errors import RequestError
from siltstone.joined import protocol
from siltstone.joined.frames import frame
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.replies import JSON_TYPE
from siltstone.server.http.request import BodyTooLargeError, HttpRequest, no_room
from siltstone.server.sessions import Session, Sessions
from siltstone.telemetry.notices import NoticeLog

_READ_BYTES = 64 << 10
_BODY_READ_BYTES = 1 << 20
_CREDENTIALS = struct.Struct("3i")
_IS_OVER = select.EPOLLHUP | select.EPOLLERR
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC")
_log = NoticeLog("siltstone.server")


class Server(Protocol):
    """What a connection uses of the socket's other parts; `FrameConnections` has it."""

    pipeline: Pipeline
    sessions: Sessions
    user: int
    submit: Callable[..., object]

    @property
    def flags(self) -> int: ...

    def watch(self, fd: int, connection: FrameConnection, /) -> None: ...

    def forget(self, fd: int, /) -> None: ...

    def pause(self, fd: int, /) -> None: ...

    def resume(self, fd: int, /) -> None: ...

    def begin(self, connection: FrameConnection, head: frame.Head, body: memoryview, /) -> None: ...


class FrameRequest:
    """One request of a frame, as the pipeline sees requests."""

    __slots__ = (
        *("_body", "connection", "headers", "is_chunked", "length", "may_go_on", "params", "scope"),
    )

    def __init__(self, connection: FrameConnection, head: frame.Head, body: bytes) -> None:
        path, kind, transaction_id, transaction, snapshot = head
        self.connection, self._body = connection, body
        self.length, self.is_chunked, self.may_go_on = len(body), False, True
        self.params: dict[str, str] = {}
        given = {
            "content-type": kind,
            protocol.ID_HEADER: transaction_id,
            protocol.TRANSACTION_HEADER: transaction,
            protocol.SNAPSHOT_HEADER: snapshot,
        }
        self.headers = {name: value for name, value in given.items() if value}
        full = f"/v1/{path}"
        self.scope: dict[str, Any] = {
            **connection.scope,
            "method": "POST" if kind else "GET",
            "path": full,
            "raw_path": full.encode("utf-8", "replace"),
        }

    async def receive(self) -> dict[str, Any]:
        """Return the body, and then that the client is gone, once it is."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.connection.gone.wait()
        return {"type": "http.disconnect"}


class FrameConnection(asyncio.Protocol):
    """One connection. The event loop's thread."""

    transport: asyncio.Transport
    _fd = -1
    _is_opened = _is_busy = _is_paused = _is_closing = _is_untaken = False
    """Busy: a request of it is inside. Paused: it sent more meanwhile, which is left unread.
    Untaken: the request is answered, and inside until the client took enough of that."""
    _counted = _dropped = 0
    """Of a request that is not whole: bytes that count among the bodies that are inside, and bytes
    for which there was no room, which do not stand in `_arrived`."""
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, all_: Server, server_state: Any, loop: Any) -> None:
        self._all, self._state, self._loop = all_, server_state, loop
        self._arrived: bytes | bytearray = b""
        self._begun_answer: tuple[int, int, str] | None = None
        self.scope = {"type": "http", "state": {"connection": self}}
        self.gone, self._writable = asyncio.Event(), asyncio.Event()
        self._writable.set()

    # the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.pause_reading()  # `readable` reads
        sock = transport.get_extra_info("socket")
        self._fd = sock.fileno()
        self._state.connections.add(self)
        self._session = self._all.sessions.open()
        peer, user = _peer(sock), self._all.user
        if peer != user:
            text = f"the store is served to user {user}, not to user {peer}"
            self._session.refusal = RequestError(text)
        self._all.watch(self._fd, self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._all.forget(self._fd)
        self._state.connections.discard(self)
        self._leave_room()
        self.gone.set()
        self._writable.set()
        self._session.is_closed = True
        # In a thread: what was open may be in use, and the loop never waits.
        with suppress(RuntimeError):  # shut down: `close_all` does it
            self._all.submit(self._all.sessions.close, self._session)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._is_untaken:
            self._is_untaken = False
            self._answered()

    def session(self) -> Session:
        """Return the session: what its client opens lives with the connection."""
        return self._session

    def shutdown(self) -> None:
        """End, once what is inside is answered."""
        self._is_closing = True
        if not self._is_busy or self._is_untaken:
            self.transport.close()

    def end(self) -> None:
        """Cut the connection."""
        self.transport.abort()

    # what arrives

    def readable(self, event: int) -> None:
        """Read what came, and begin the request that is whole."""
        if self._is_busy:
            if event & _IS_OVER:
                self.transport.abort()
            else:
                self._is_paused = True
                self._all.pause(self._fd)
            return
        try:
            data = os.read(self._fd, _BODY_READ_BYTES if self._counted else _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.transport.abort()
            return
        if not self._arrived:
            self._arrived = data
        elif isinstance(self._arrived, bytearray):
            self._arrived += data
        else:
            self._arrived = bytearray(self._arrived) + data
        self._begin_next()

    def _begin_next(self) -> None:
        if self._is_busy or self.transport.is_closing():
            return
        if not self._is_opened and not self._opens():
            return
        if len(self._arrived) < frame.REQUEST.size:
            self._wait(frame.REQUEST.size)
            return
        size, head_bytes = frame.REQUEST.unpack_from(self._arrived)
        start, end = frame.REQUEST.size + head_bytes, frame.LENGTH.size + size
        most = self._all.pipeline.policy.body_bytes_max
        if head_bytes > frame.HEAD_BYTES_MAX or end < start:
            self._refuse(RequestError(f"this is no request: a head of {head_bytes} bytes"))
        elif end - start > most:
            self._refuse(BodyTooLargeError(most))
        elif len(self._arrived) + self._dropped < end:
            self._wait(start)
        else:
            self._begin(start, end)

    def _opens(self) -> bool:
        """Take the opening; what begins with something else is refused, in its own words."""
        data = bytes(self._arrived[: len(frame.OPENING)])
        if data == frame.OPENING:
            self._is_opened, self._arrived = True, self._arrived[len(frame.OPENING) :]
            return True
        if len(data) < len(frame.OPENING) and frame.OPENING.startswith(data):
            self._wait(len(frame.OPENING))
        elif data.startswith(frame.OPENING_WORD):
            said = data[len(frame.OPENING_WORD) :].strip().decode("ascii", "replace")
            self._refuse(_other_version(said))
        elif data[:4] in _HTTP_METHODS:
            self._refuse_http()
        else:
            self._refuse(RequestError("this is no request of a siltstone that joined the store"))
        return False

    def _wait(self, start: int) -> None:
        """Wait for the rest of a request whose body begins at `start`.

        A body for which there is no room is read to its end, and dropped: the connection carries a
        transaction, and a client that tries again later needs it.
        """
        policy, bodies = self._all.pipeline.policy, self._all.pipeline.bodies
        self._stop_timer()
        self._timer = self._loop.call_later(policy.body_timeout_s, self._is_late)
        came = len(self._arrived) - start
        if came <= 0:
            return
        if not self._dropped and bodies.nbytes + came - self._counted <= policy.bodies_bytes_max:
            bodies.nbytes += came - self._counted
            self._counted = came
            return
        self._dropped += came
        self._arrived = self._arrived[:start]
        bodies.nbytes -= self._counted
        self._counted = 0

    def _leave_room(self) -> None:
        self._all.pipeline.bodies.nbytes -= self._counted
        self._counted = self._dropped = 0
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_late(self) -> None:
        seconds = self._all.pipeline.policy.body_timeout_s
        self._refuse(RequestError(f"nothing of the body came for {seconds:g} s"))

    def _begin(self, start: int, end: int) -> None:
        """Begin the request that ends at `end`; its body begins at `start`."""
        dropped = self._dropped
        if self._timer is not None:
            self._leave_room()
        end -= dropped
        data, self._arrived = memoryview(self._arrived)[:end], self._arrived[end:]
        self._is_busy = True
        if dropped:
            self.send_answer(self._refusal(no_room(self._all.pipeline.policy)))
            return
        try:
            head = frame.head_of(data[frame.REQUEST.size : start])
        except msgspec.MsgspecError as error:
            self._refuse(RequestError(f"this is no request: {error}"))
            return
        self._all.begin(self, head, data[start:])

    # what is answered

    def send(self, status: int, flags: int, reserved: str, body: bytes) -> None:
        """Send the whole answer of the request that is inside."""
        if not self.transport.is_closing():
            self.transport.write(frame.answer(status, flags | self._all.flags, reserved, body))
        self._answered()

    def _answered(self) -> None:
        if self._is_closing:
            self.transport.close()
        if not self._writable.is_set():
            self._is_untaken = True
            return
        self._is_busy = False
        if self._is_paused:
            self._is_paused = False
            self._all.resume(self._fd)
        if self._arrived:
            self._loop.call_soon(self._begin_next)

    def send_answer(self, response: Response) -> None:
        """Send the pipeline's response, in a task if it has many pieces."""
        if type(response) is not Response:
            self.run(response(self.scope, self._never, self.send_piece))
            return
        flags, reserved, is_last = _said(response.raw_headers)
        self._is_closing |= is_last
        self.send(response.status_code, flags, reserved, bytes(response.body))

    def run(self, answering: Coroutine[Any, Any, None]) -> None:
        """Answer in a task."""
        task = self._loop.create_task(answering)
        self._state.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._state.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an answer was not sent", exc_info=error)
            self.transport.abort()

    async def _never(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send_piece(self, message: Any) -> None:
        """Send a message of ASGI, once the client took enough of those before."""
        if message["type"] == "http.response.start":
            flags, reserved, is_last = _said(message["headers"])
            self._is_closing |= is_last
            self._begun_answer = message["status"], flags, reserved
            return
        assert self._begun_answer is not None
        status, flags, reserved = self._begun_answer
        has_more = message.get("more_body", False)
        if not self.transport.is_closing():
            flags |= (frame.MORE if has_more else 0) | self._all.flags
            self.transport.write(frame.answer(status, flags, reserved, message.get("body", b"")))
            await self._writable.wait()
        if not has_more:
            self._answered()

    def _refusal(self, error: Exception) -> Response:
        return self._all.pipeline.wire.refusal(error, cast("HttpRequest", None), None)

    def _refuse(self, error: Exception) -> None:
        """Refuse what cannot be told from what follows it: the connection ends."""
        self._leave_room()
        self._is_busy = self._is_closing = True
        self._arrived = b""
        self.send_answer(self._refusal(error))

    def _refuse_http(self) -> None:
        """Say to a siltstone that asks by HTTP, as version 4 did, which version this is."""
        refusal = self._refusal(_other_version("4 (HTTP)"))
        head = f"content-type: {JSON_TYPE}\r\ncontent-length: {len(refusal.body)}\r\n"
        start = f"HTTP/1.1 400 Bad Request\r\n{head}connection: close\r\n\r\n"
        self.transport.write(start.encode() + bytes(refusal.body))
        self.transport.close()


def _said(headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str, bool]:
    """Return what the headers of a response say: flags, the id, whether the connection ends."""
    flags, reserved, is_last = 0, "", False
    for name, value in headers:
        if name == b"content-type" and value == protocol.ARROW_TYPE.encode():
            flags = frame.ROWS
        elif name == protocol.ID_HEADER.encode():
            reserved = value.decode("ascii")
        elif name == b"connection":
            is_last |= value == b"close"
    return flags, reserved, is_last


def _other_version(said: str) -> RequestError:
    return RequestError(
        f"the owner speaks version {protocol.VERSION} of the protocol, this siltstone {said}; use"
        " one siltstone on both sides"
    )


def _peer(sock: socket.socket) -> int:
    """Return the user at the other end, as the kernel noted it at `connect`."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return cast("int", _CREDENTIALS.unpack(data)[1])
