"""The doors at which the one pipeline of requests answers, each reached by a bare socket."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import siltstone as st
from siltstone.joined import protocol
from siltstone.joined.frames import frame
from siltstone.joined.values import encode
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.server import HttpServer
from tests.server.stores import eventually, opened

HTTP_DOORS = ("joined", "rest")
"""The words of joined processes over TCP, and REST over TCP."""
DOORS = ("socket", *HTTP_DOORS)
"""The Unix socket of this user, too, which speaks frames."""


@dataclass
class Told:
    """One answer; `error` is the sentence of a refusal."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return json.loads(self.body)["error"]

    @property
    def is_busy(self) -> bool:
        return self.status in {429, 503} and "try again later" in self.error


@dataclass
class Wire:
    """One connection to a door."""

    sock: socket.socket

    def send(self, method: str, path: str, size: int, body: bytes = b"", head: str = "") -> None:
        """Send a head that announces `size` bytes, and `body`, which may be less."""
        text = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n{head}"
        self.sock.sendall(text.encode() + b"\r\n" + body)

    def told(self) -> Told:
        """Read one answer."""
        response = http.client.HTTPResponse(self.sock)
        response.begin()
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Told(response.status, headers, response.read())

    @property
    def is_ended(self) -> bool:
        """Whether the server ends it, rather than waits for another request."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True


@dataclass
class FrameWire(Wire):
    """One connection to the Unix socket; it says what `Wire` says, in frames."""

    opening: bytes = frame.OPENING

    def send(self, method: str, path: str, size: int, body: bytes = b"", head: str = "") -> None:
        kind = "" if method == "GET" else protocol.VALUES_TYPE
        said, _ = frame.request_parts((path.removeprefix("/v1/"), kind, "", "", ""), b"")
        rest = said[frame.REQUEST.size :]
        start = frame.REQUEST.pack(len(rest) + 2 + size, len(rest))
        self.sock.sendall(self.opening + start + rest + body)
        self.opening = b""

    def told(self) -> Told:
        whole, has_more, status = bytearray(), True, 0
        while has_more:
            head = frame.answer_head(self.received(frame.ANSWER.size))
            self.received(head.id_bytes)
            whole += self.received(head.nbytes - head.id_bytes)
            status, has_more = head.status, bool(head.flags & frame.MORE)
        return Told(status, {}, bytes(whole))

    def received(self, size: int) -> bytes:
        """Return the next bytes."""
        found = self.sock.recv(size, socket.MSG_WAITALL) if size else b""
        if len(found) < size:
            raise ConnectionError("it ended")
        return found


@dataclass
class Door:
    """A server of an open store, as far as it is the same everywhere; `t` has a key."""

    kind: str
    db: st.Store
    http: HttpServer
    pipeline: Pipeline
    address: object
    prefix: str
    made: list[socket.socket] = field(default_factory=list)

    def bound(self, **bounds: Any) -> None:
        """Give requests from now on other bounds."""
        self.pipeline.policy = replace(self.pipeline.policy, **bounds)

    def wire(self) -> Wire:
        """Return a new connection."""
        if self.kind == "socket":
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(30)
            sock.connect(str(self.address))
        else:
            sock = socket.create_connection(("127.0.0.1", self.address), timeout=30)
        self.made.append(sock)
        return FrameWire(sock) if self.kind == "socket" else Wire(sock)

    @property
    def reading(self) -> tuple[str, bytes]:
        """The path and the body of a request that counts rows, which takes a deadline."""
        if self.kind == "rest":
            return "/v1/table/t/count_rows", json.dumps({"predicate": "v = 'none'"}).encode()
        return f"{self.prefix}/table/{self.db['t'].id}/count", encode([["v = 'none'"], {}])

    @property
    def scanning(self) -> tuple[str, bytes]:
        """The path and the body of a request that returns all rows."""
        if self.kind == "rest":
            return "/v1/table/t/scan", b"{}"
        return f"{self.prefix}/table/{self.db['t'].id}/scan", encode([[], {}])

    def asked(self, wire: Wire | None = None) -> Told:
        """Ask a small question, on a connection of its own or on this one."""
        path, body = self.reading
        wire = wire or self.wire()
        wire.send("POST", path, len(body), body)
        return wire.told()

    def is_idle(self) -> bool:
        """Whether nothing is inside any more."""
        pipeline = self.pipeline
        return not (
            pipeline.counters.inside
            or pipeline.bodies.nbytes
            or self.http.thread.server_state.tasks
        )


@contextmanager
def door_of(kind: str, path: Path) -> Iterator[Door]:
    """Yield a door of a store; nothing is inside any more when it ends."""
    with opened(path) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        if kind == "socket":
            address: object = db.serve_local()
            server = db._parts.endpoint
            door = Door(kind, db, server.http, server.pipeline, address, "/v1")
        else:
            server = db.serve(port=0)
            pipeline = server.pipeline if kind == "rest" else server.joined
            prefix = "/v1" if kind == "rest" else "/v1/joined"
            door = Door(kind, db, server.http, pipeline, server.port, prefix)
        try:
            yield door
        finally:
            for sock in door.made:
                sock.close()
        eventually(door.is_idle)
