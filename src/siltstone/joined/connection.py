"""Connection: one connection of this process to the owner of a store: what it asks, and HTTP.

To a server's URL a connection speaks HTTP; to the socket of an owner it speaks frames
(`frames.connection`). Each answer carries the id of the connection's next commit (`reserved`), and
when it came. An answer whose head or rows broke off raises OSError or HTTPException: never is it
taken for whole.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import time
import weakref
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pyarrow as pa

from siltstone.errors import AccessError, SiltstoneError, in_words
from siltstone.joined import protocol
from siltstone.joined.targets import ServerTarget
from siltstone.joined.values import decode, raised

HELLO_TIMEOUT_S = 10.0
ONE_PIECE_BYTES_MAX = 64 << 10
BROKEN = (OSError, http.client.HTTPException)
"""What a connection raises that broke; its session at the owner is gone."""

_HEADERS = (protocol.ID_HEADER, protocol.TRANSACTION_HEADER, protocol.SNAPSHOT_HEADER)


@dataclass(frozen=True, slots=True)
class Message:
    """One request; `kind` is the media type of its body.

    `id` is that of the commit which it asks for, `transaction` or `snapshot` what it is asked of.
    """

    path: str
    body: bytes = b""
    kind: str = protocol.VALUES_TYPE
    id: str = ""
    transaction: str = ""
    snapshot: str = ""


class Body(Protocol):
    """The body of an answer, as a file that is read once."""

    def read(self, size: int = -1, /) -> bytes: ...

    def close(self) -> None: ...

    def isclosed(self) -> bool:
        """Whether all of it was read, or it was closed."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; of rows the body is an Arrow stream, which arrives as it is read."""

    body: Body
    is_rows: bool


class HttpOwnerConnection(http.client.HTTPConnection):
    """The connection to a server's URL. One thread at a time uses it, but for `end`."""

    has_closed = True
    """Whether the owner may have tables that are closed to first tries: a server does not say."""

    def __init__(self, target: ServerTarget, hello_timeout_s: float) -> None:
        self._target, self._hello_timeout_s = target, hello_timeout_s
        super().__init__(self._target.host, timeout=hello_timeout_s)
        self.reserved, self.reserved_at = "", 0.0
        self._held: list[bytes] | None = None

    def connect(self) -> None:
        """Connect to where the owner answers."""
        self.sock = self._target.dial(self._hello_timeout_s)
        self.auto_open = 0  # a lost connection is never made anew unseen: its session is gone

    def wait_at_most(self, seconds: float | None) -> None:
        """Raise TimeoutError where the owner is silent for so long; None: wait for ever."""
        assert isinstance(self.sock, socket.socket)
        self.sock.settimeout(seconds)

    def look(self, name: str) -> Any:
        """Ask for something that takes no arguments, and return it. Errors as of `ask`."""
        self.request("GET", f"{self._target.prefix}/{name}", headers=self._target.headers)
        return value_of(self._checked(self.getresponse()))

    def ask(self, message: Message) -> Answer:
        """Send a request; return the answer.

        Raises:
            SiltstoneError: The error that the owner answered with.
            AccessError: It, or what stands before it, wants another access token.
            OSError, HTTPException: The connection broke.
        """
        # A small request is sent in one piece: the other end wakes up once for it.
        given = zip(_HEADERS, (message.id, message.transaction, message.snapshot), strict=True)
        headers = {name: value for name, value in given if value}
        headers |= {"content-type": message.kind, **self._target.headers}
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

    def follow(self) -> http.client.HTTPResponse:
        """Ask for the seqs of the server's commits as they come; return the events.

        Raises:
            SiltstoneError: It refuses; too many may follow already.
        """
        self.request("GET", protocol.SEQS_PATH, headers=self._target.headers)
        response = self.getresponse()
        if response.status != 200:
            raise refused(response.status, response.read())
        return response

    def send(self, data: Any) -> None:
        """Send, or hold what is to go in one piece."""
        if self._held is None:
            super().send(data)
        else:
            self._held.append(data)

    def _checked(self, response: http.client.HTTPResponse) -> Answer:
        if response.length is None and not response.chunked:  # its head broke off
            response.close()
            raise http.client.HTTPException("an answer that does not say how long it is")
        self.reserved = response.headers.get(protocol.ID_HEADER, "")
        self.reserved_at = time.monotonic()
        if response.status != 200:
            raise refused(response.status, response.read())
        is_rows = response.headers.get_content_type() == protocol.ARROW_TYPE
        return Answer(response, is_rows)

    def end(self) -> None:
        """End it while another thread may use it: that thread finds it broken and closes it.

        To close it here would free its parts while the other thread uses them.
        """
        end_socket(self.sock)

    def forget(self) -> None:
        """In the child of a fork: close the copy that it has, and leave the parent's alone."""
        with contextlib.suppress(OSError):
            if self.sock is not None:
                os.close(self.sock.detach())

    @property
    def is_broken(self) -> bool:
        """Whether the other end closed it, or sent something that was not asked for."""
        return is_broken(self.sock)


def end_socket(sock: object) -> None:
    """End a connection from another thread than the one that uses it."""
    if isinstance(sock, socket.socket):
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS's own would free its parts


def is_broken(sock: socket.socket | None) -> bool:
    """Say whether the other end closed a connection, or sent something that was not asked for."""
    if sock is None:
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def refused(status: int, body: bytes) -> SiltstoneError:
    """Return the error that an answer with another status than 200 holds."""
    try:
        return raised(decode(b64decode(json.loads(body)["fields"])))
    except (ValueError, KeyError, TypeError):
        text = f"the owner answered {status}: {body[:200]!r}"
    if status in {401, 403}:  # of what stands before the server
        return AccessError(text, status=status)
    return SiltstoneError(text)


def value_of(answer: Answer) -> Any:
    """Return the value that an answer holds."""
    return decode(answer.body.read())


def rows_of(
    body: Body,
    close: Callable[[], object],
    give: Callable[[], object],
    lost: Callable[[BaseException], SiltstoneError],
) -> pa.RecordBatchReader:
    """Return the rows of an answer as they arrive; one that is left early closes its connection.

    Args:
        body: That of the answer.
        close: Closes the connection that they were asked on.
        give: Gives it back when all of the answer is read.
        lost: Makes the error of an answer that broke off.

    Raises:
        OSError, HTTPException: The answer broke off before it said what the columns are.
    """
    try:
        stream = pa.ipc.open_stream(pa.PythonFile(cast("Any", body), "r"))
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
            body.read()
        except (*BROKEN, StopIteration, pa.ArrowException) as error:
            close()
            raise lost(error) from error
        give()
        if protocol.ERROR_KEY in found:
            raise raised(decode(found[protocol.ERROR_KEY]))

    batches = arriving()
    weakref.finalize(batches, _leave, close, body)
    return pa.RecordBatchReader.from_batches(stream.schema, batches)


def _leave(close: Callable[[], object], body: Body) -> None:
    if not body.isclosed():
        close()
