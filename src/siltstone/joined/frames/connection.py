"""Connection: a connection to the socket of an owner on this machine, in frames (`frames.frame`).

A request is sent whole, in one piece if it is small: the other end wakes up once for it. Of an
answer that has more frames each next one is read when the one before was.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any

from siltstone.errors import RequestError
from siltstone.joined import protocol
from siltstone.joined.connection import Answer, Message, end_socket, is_broken, refused, value_of
from siltstone.joined.frames import frame
from siltstone.joined.targets import SocketTarget

_ONE_PIECE_BYTES_MAX = 64 << 10
_READ_BYTES = 64 << 10


class FrameOwnerConnection:
    """See the module; its methods are those of `HttpOwnerConnection`."""

    def __init__(self, target: SocketTarget, hello_timeout_s: float) -> None:
        self._target, self._hello_timeout_s = target, hello_timeout_s
        self._sock: socket.socket | None = None
        self._opening, self._ahead = frame.OPENING, b""
        self.reserved, self.reserved_at = "", 0.0
        self.has_closed = False

    def connect(self) -> None:
        self._sock = self._target.dial(self._hello_timeout_s)

    def wait_at_most(self, seconds: float | None) -> None:
        self._open().settimeout(seconds)

    def look(self, name: str) -> Any:
        return value_of(self.ask(Message(name, kind="")))

    def ask(self, message: Message) -> Answer:
        self.send(message)
        status, flags, body = self.next_frame()
        if status != 200:
            raise refused(status, bytes(body))
        return Answer(
            _Body(self, body, has_more=bool(flags & frame.MORE)), bool(flags & frame.ROWS)
        )

    def _open(self) -> socket.socket:
        """Return the socket; one that is lost is never made anew unseen: its session is gone."""
        if self._sock is None:
            raise ConnectionError("the connection is closed")
        return self._sock

    def send(self, message: Message) -> None:
        """Send a request; `next_frame` gives the answer."""
        head = (message.path, message.kind, message.id, message.transaction, message.snapshot)
        parts = frame.request_parts(head, message.body)
        parts[0], self._opening = self._opening + parts[0], b""
        sock = self._open()
        if len(message.body) <= _ONE_PIECE_BYTES_MAX:
            sock.sendall(b"".join(parts))
            return
        for part in parts:
            sock.sendall(part)

    def next_frame(self) -> tuple[int, int, memoryview]:
        """Return the next frame of an answer: its status, its flags and its body.

        Raises:
            RequestError: The owner speaks another version.
            OSError: The connection broke.
        """
        sock = self._open()
        data, self._ahead = self._ahead, b""
        while len(data) < frame.ANSWER.size:
            data += _more(sock)
        if data.startswith(frame.OF_HTTP):
            raise RequestError(
                "the owner speaks version 4 of the protocol or an older one, this siltstone"
                f" {protocol.VERSION}; use one siltstone on both sides"
            )
        head = frame.answer_head(data)
        size = frame.ANSWER.size + head.nbytes
        whole = memoryview(data if len(data) >= size else _rest(sock, data, size))
        self._ahead = data[size:]  # of an answer of several frames
        start = frame.ANSWER.size + head.id_bytes
        if head.id_bytes:
            self.reserved = str(whole[frame.ANSWER.size : start], "ascii")
            self.reserved_at = time.monotonic()
        self.has_closed = bool(head.flags & frame.CLOSED)
        return head.status, head.flags, whole[start:size]

    def end(self) -> None:
        end_socket(self._sock)

    def close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def forget(self) -> None:
        with contextlib.suppress(OSError):
            if self._sock is not None:
                os.close(self._sock.detach())

    @property
    def is_broken(self) -> bool:
        return is_broken(self._sock)


def _more(sock: socket.socket) -> bytes:
    found = sock.recv(_READ_BYTES)
    if not found:
        raise ConnectionResetError("the owner closed the connection")
    return found


def _rest(sock: socket.socket, data: bytes, size: int) -> bytearray:
    """Return `data` and what follows it, `size` bytes in all."""
    whole = bytearray(size)
    whole[: len(data)] = data
    place, view = len(data), memoryview(whole)
    while place < size:
        got = sock.recv_into(view[place:])
        if not got:
            raise ConnectionResetError("the owner closed the connection in its answer")
        place += got
    return whole


class _Body:
    """The body of an answer, frame by frame, as a file that is read once."""

    closed = False

    def __init__(
        self, connection: FrameOwnerConnection, first: memoryview, *, has_more: bool
    ) -> None:
        self._connection, self._held, self._has_more = connection, first, has_more

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes, fewer only at the end; all that is left without a size."""
        if size < 0:
            size = 1 << 62
        if not self._has_more and size >= len(self._held):
            found, self._held = bytes(self._held), self._held[:0]
            return found
        pieces: list[memoryview] = []
        while size:
            if not self._held:
                if not self._has_more:
                    break
                _, flags, body = self._connection.next_frame()
                self._held, self._has_more = body, bool(flags & frame.MORE)
                continue
            piece, self._held = self._held[:size], self._held[size:]
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def readable(self) -> bool:
        return True

    def isclosed(self) -> bool:
        return not self._has_more and not self._held

    def close(self) -> None:
        """Give it up; its connection is closed by who asked for it."""
