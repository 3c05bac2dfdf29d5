"""HTTP client: one connection that costs as little as a client in Python can.

The two cores of a run are the server's and ours: `http.client` would take a third of one.
"""

from __future__ import annotations

import json
import socket
from typing import Any

import pyarrow as pa

_PIECE_BYTES = 1 << 18


class Connection:
    """A socket, and requests on it one after the other; each must be answered with 200."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._kept = b""

    def get(self, path: str) -> bytes:
        """Return the body of the answer."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return self._answer()

    def post(self, path: str, body: dict[str, Any]) -> bytes:
        """Return the body of the answer."""
        self._ask(path, body)
        return self._answer()

    def _answer(self) -> bytes:
        length = self._length()
        if length is not None:
            return bytes(self.take(length))
        parts: list[bytearray] = []
        while size := self._chunk():
            parts.append(self.take(size))
            self.take(2)
        self.take(2)
        return b"".join(parts)

    def scan(self, path: str, body: dict[str, Any]) -> int:
        """Read an Arrow stream as it comes; return how many rows there were."""
        self._ask(path, body)
        if self._length() is not None:
            message = "a scan is answered in chunks"
            raise RuntimeError(message)
        source = pa.PythonFile(_Body(self), "r")  # type: ignore[arg-type]
        rows = sum(batch.num_rows for batch in pa.ipc.open_stream(source))
        while size := self._chunk():
            self.take(size + 2)
        self.take(2)
        return rows

    def _ask(self, path: str, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n\r\n"
        self._socket.sendall(head.encode() + content)

    def _length(self) -> int | None:
        """Read the head; return how long the body is, None if it comes in chunks."""
        head = self._until(b"\r\n\r\n").lower()
        lines = head.split(b"\r\n")
        if b" 200 " not in lines[0]:
            raise RuntimeError(head.decode())
        found = [line for line in lines if line.startswith(b"content-length:")]
        return int(found[0].partition(b":")[2]) if found else None

    def _chunk(self) -> int:
        return int(self._until(b"\r\n"), 16)

    chunk = _chunk

    def _until(self, end: bytes) -> bytes:
        while end not in self._kept:
            self._kept += self._receive(1 << 12)
        found, _, self._kept = self._kept.partition(end)
        return found

    def take(self, length: int) -> bytearray:
        """Return so many bytes of the answer."""
        found = bytearray(length)
        view, kept = memoryview(found), self._kept[:length]
        view[: len(kept)] = kept
        self._kept = self._kept[length:]
        at = len(kept)
        while at < length:
            count = self._socket.recv_into(view[at:])
            if not count:
                message = "the server went away"
                raise ConnectionError(message)
            at += count
        return found

    def _receive(self, most: int) -> bytes:
        found = self._socket.recv(most)
        if not found:
            message = "the server went away"
            raise ConnectionError(message)
        return found

    def close(self) -> None:
        self._socket.close()


class _Body:
    """The body of an answer that comes in chunks, as a file."""

    closed = False

    def __init__(self, connection: Connection) -> None:
        self._connection, self._left = connection, 0

    def read(self, length: int) -> bytes | bytearray:
        if not self._left:
            self._left = self._connection.chunk()
        if length <= self._left:
            found = self._connection.take(length)
            self._used(length)
            return found
        parts, wanted = [], length
        while wanted:
            if not self._left:
                self._left = self._connection.chunk()
            size = min(wanted, self._left)
            parts.append(self._connection.take(size))
            self._used(size)
            wanted -= size
        return b"".join(parts)

    def _used(self, size: int) -> None:
        self._left -= size
        if not self._left:
            self._connection.take(2)
