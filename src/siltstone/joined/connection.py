"""Connection: one HTTP connection of this process to the owner of a store.

Each answer carries the id of the connection's next commit (`reserved`), and when it came. An
answer whose head or rows broke off raises OSError or HTTPException: never is it taken for whole.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import time
import weakref
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from siltstone.errors import AccessError, SiltstoneError, in_words
from siltstone.joined import protocol
from siltstone.joined.targets import SocketTarget, Target
from siltstone.joined.values import decode, raised

HELLO_TIMEOUT_S = 10.0
ONE_PIECE_BYTES_MAX = 64 << 10
BROKEN = (OSError, http.client.HTTPException)
"""What a connection raises that broke; its session at the owner is gone."""


@dataclass(frozen=True, slots=True)
class Message:
    """One request; `kind` is the media type of its body."""

    path: str
    body: bytes = b""
    kind: str = protocol.VALUES_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)


class OwnerConnection(http.client.HTTPConnection):
    """See the module. One thread at a time, but for `end`."""

    def __init__(self, target: Target | str, *, hello_timeout_s: float = HELLO_TIMEOUT_S) -> None:
        self._target = SocketTarget(target) if isinstance(target, str) else target
        self._hello_timeout_s = hello_timeout_s
        super().__init__(self._target.host, timeout=hello_timeout_s)
        self.reserved, self.reserved_at = "", 0.0
        self._held: list[bytes] | None = None

    def connect(self) -> None:
        """Connect to where the owner answers."""
        self.sock = self._target.dial(self._hello_timeout_s)
        self.auto_open = 0  # a lost connection is never made anew unseen: its session is gone

    def greet(self) -> Any:
        """Ask the owner what a client must know, and for a fresh id of the next commit."""
        return self.look("hello")

    def look(self, name: str) -> Any:
        """Ask for something that takes no arguments, and return it. Errors as of `ask`."""
        self.request("GET", f"{self._target.prefix}/{name}", headers=self._target.headers)
        return value_of(self._checked(self.getresponse()))

    def ask(self, message: Message) -> http.client.HTTPResponse:
        """Send a request; return the response if it holds an answer.

        A small request is sent in one piece: the other end wakes up once for it.

        Raises:
            SiltstoneError: The error that the owner answered with.
            AccessError: It, or what stands before it, wants another access token.
            OSError, HTTPException: The connection broke.
        """
        headers = {"content-type": message.kind, **message.headers, **self._target.headers}
        self._held = [] if len(message.body) <= ONE_PIECE_BYTES_MAX else None
        try:
            path = f"{self._target.prefix}/{message.path}"
            self.request("POST", path, message.body, headers)
            whole = b"".join(self._held or ())
        finally:
            self._held = None
        if whole:
            self.send(whole)
        return self._checked(self.getresponse())

    def send(self, data: Any) -> None:
        """Send, or hold what is to go in one piece."""
        if self._held is None:
            super().send(data)
        else:
            self._held.append(data)

    def _checked(self, response: http.client.HTTPResponse) -> http.client.HTTPResponse:
        if response.length is None and not response.chunked:  # its head broke off
            response.close()
            raise http.client.HTTPException("an answer that does not say how long it is")
        self.reserved = response.headers.get(protocol.ID_HEADER, "")
        self.reserved_at = time.monotonic()
        if response.status == 200:
            return response
        body = response.read()
        try:
            raise raised(decode(b64decode(json.loads(body)["fields"])))
        except (ValueError, KeyError, TypeError):
            text = f"the owner answered {response.status}: {body[:200]!r}"
            if response.status in {401, 403}:  # of what stands before the server
                raise AccessError(text, status=response.status) from None
            raise SiltstoneError(text) from None

    def end(self) -> None:
        """End it while another thread may use it: that thread finds it broken and closes it.

        To close it here would free its parts while the other thread uses them.
        """
        sock = self.sock
        if isinstance(sock, socket.socket):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS's own would free its parts

    @property
    def is_broken(self) -> bool:
        """Whether the other end closed it, or sent something that was not asked for."""
        if self.sock is None:
            return True
        poll = select.poll()
        poll.register(self.sock, select.POLLIN | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))


def value_of(response: http.client.HTTPResponse) -> Any:
    """Return the value that a response holds."""
    return decode(response.read())


def rows_of(
    connection: OwnerConnection,
    response: http.client.HTTPResponse,
    give: Callable[[OwnerConnection], None],
    lost: Callable[[BaseException], SiltstoneError],
) -> pa.RecordBatchReader:
    """Return the rows of an answer as they arrive; one that is left early closes its connection.

    Args:
        connection: What the rows were asked on.
        response: The answer.
        give: Gets the connection when all of the answer is read.
        lost: Makes the error of an answer that broke off.

    Raises:
        OSError, HTTPException: The answer broke off before it said what the columns are.
    """
    try:
        stream = pa.ipc.open_stream(pa.PythonFile(response, "r"))
    except pa.ArrowInvalid as error:  # Arrow calls a stream that ended early no stream
        raise http.client.HTTPException(in_words(error)) from error

    def arriving() -> Iterator[pa.RecordBatch]:
        try:
            while True:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
                found = dict(metadata or {})
                if protocol.ERROR_KEY in found or protocol.END_KEY in found:
                    break
                yield batch
            response.read()
        except (*BROKEN, StopIteration, pa.ArrowException) as error:
            connection.close()
            raise lost(error) from error
        give(connection)
        if protocol.ERROR_KEY in found:
            raise raised(decode(found[protocol.ERROR_KEY]))

    batches = arriving()
    weakref.finalize(batches, _leave, connection, response)
    return pa.RecordBatchReader.from_batches(stream.schema, batches)


def _leave(connection: OwnerConnection, response: http.client.HTTPResponse) -> None:
    if not response.isclosed():
        connection.close()
