"""HTTP client: one connection that costs as little as a client in Python can.

The two cores of a run are the server's and ours: `http.client` would take a third of one.
"""

from __future__ import annotations

import json
import socket
from typing import Any


class Connection:
    """A socket, and requests on it one after the other; each must be answered with 200."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._kept = b""

    def post(self, path: str, body: dict[str, Any]) -> bytes:
        """Return the body of the answer."""
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n\r\n"
        self._socket.sendall(head.encode() + content)
        return b"".join(self._answer())

    def _answer(self) -> list[bytes]:
        while b"\r\n\r\n" not in self._kept:
            self._receive()
        head, _, self._kept = self._kept.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        if b" 200 " not in lines[0]:
            raise RuntimeError(head.decode())
        if b"transfer-encoding: chunked" in lines:
            return self._chunks()
        length = next(
            int(ln.partition(b":")[2]) for ln in lines if ln.startswith(b"content-length")
        )
        return [self._take(length)]

    def _chunks(self) -> list[bytes]:
        found: list[bytes] = []
        while True:
            while b"\r\n" not in self._kept:
                self._receive()
            size, _, self._kept = self._kept.partition(b"\r\n")
            piece = self._take(int(size, 16) + 2)[:-2]
            if not piece:
                return found
            found.append(piece)

    def _take(self, length: int) -> bytes:
        parts, left = [self._kept[:length]], length - len(self._kept)
        self._kept = self._kept[length:]
        while left > 0:
            piece = self._socket.recv(min(left, 1 << 20))
            if not piece:
                raise ConnectionError("the server went away")
            parts.append(piece)
            left -= len(piece)
        return b"".join(parts)

    def _receive(self) -> None:
        piece = self._socket.recv(1 << 16)
        if not piece:
            raise ConnectionError("the server went away")
        self._kept += piece

    def close(self) -> None:
        self._socket.close()
