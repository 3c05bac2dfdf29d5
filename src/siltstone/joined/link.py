"""Link: the connections of one process to the owner of a store.

    take ─▶ ask ─▶ give back        an idle connection is used again, if its other end lives
    take ─▶ keep                    a transaction or snapshot lives with its connection

A read whose connection broke is asked once more on a new one. What writes never is: its answer is
lost, so it is in doubt, under the id that was known before it was asked for. Lock: one, for the
list of idle connections, and for those that `close` ends. That ends them from outside: a connection
is closed only by whoever uses it. A thread that holds the lock may close: a signal's handler does.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import socket
import threading
import time
import weakref
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from siltstone.errors import (
    BusyError,
    ClosedError,
    InDoubtError,
    RequestError,
    SiltstoneError,
    UnavailableError,
    in_words,
)
from siltstone.joined import protocol
from siltstone.joined.places import Local, Place
from siltstone.joined.values import decode, encode, raised, stream_bytes, too_large

IDLE_MAX = 8
HELLO_TIMEOUT_S = 10.0
ONE_PIECE_BYTES_MAX = 64 << 10
_BROKEN = (OSError, http.client.HTTPException)


class Connection(http.client.HTTPConnection):
    """One connection to an owner; `reserved` is the id of its next commit."""

    def __init__(self, place: Place | str) -> None:
        self._place = Local(place) if isinstance(place, str) else place
        super().__init__(self._place.host, timeout=HELLO_TIMEOUT_S)
        self.reserved, self.reserved_at = "", 0.0
        self._held: list[bytes] | None = None

    def connect(self) -> None:
        """Connect to where the owner answers."""
        self.sock = self._place.dial(HELLO_TIMEOUT_S)
        self.auto_open = 0  # a lost connection is never made anew unseen: its session is gone

    def greet(self) -> http.client.HTTPResponse:
        """Ask who answers; the answer has the id of the next commit."""
        self.request("GET", f"{self._place.prefix}/hello", headers=self._place.headers)
        return self.getresponse()

    def ask(self, path: str, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Send a request in one piece, if it is small: the other end wakes up once for it."""
        self._held = [] if len(body) <= ONE_PIECE_BYTES_MAX else None
        try:
            whole_path = f"{self._place.prefix}/{path}"
            self.request("POST", whole_path, body, {**headers, **self._place.headers})
            whole = b"".join(self._held or ())
        finally:
            self._held = None
        if whole:
            self.send(whole)
        return self.getresponse()

    def send(self, data: Any) -> None:
        """Send, or hold what is to go in one piece."""
        if self._held is None:
            super().send(data)
        else:
            self._held.append(data)

    def end(self) -> None:
        """End it while another thread may use it: that one finds it broken, and closes it.

        To close it would take its parts from under the other one's feet.
        """
        sock = self.sock
        if isinstance(sock, socket.socket):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not TLS's, which takes parts, too

    @property
    def is_broken(self) -> bool:
        """Whether the other end closed it, or sent what nobody asked for."""
        if self.sock is None:
            return True
        poll = select.poll()
        poll.register(self.sock, select.POLLIN | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))


class Link:
    """See the module. Any thread."""

    def __init__(self, address: Place | str, root: Path | None) -> None:
        """Connect, and see that it is the owner of the store at `root` who answers.

        Without `root` it is whatever store the server has.

        Raises:
            UnavailableError: Nobody answers at `address`, or somebody else's owner.
        """
        self.place = Local(address) if isinstance(address, str) else address
        self.root: Path | str = str(self.place) if root is None else root
        self._lock = threading.RLock()
        self._idle: list[Connection] = []
        self._all: weakref.WeakSet[Connection] = weakref.WeakSet()
        self.refusal: str | None = None
        self.hello: dict[str, Any] = {}
        self.give(self.connect())
        if root is not None and not self.is_near(root):
            self.close()
            raise UnavailableError(f"{address} serves {self.hello['path']}, not {root}")
        weakref.finalize(self, _close_all, self._idle)
        _links.add(self)

    def is_near(self, root: Path) -> bool:
        """Say whether `root`, here, is the directory of the store that the owner has."""
        try:
            status = root.stat()
        except OSError:
            return False
        return self.hello["identity"] == [status.st_dev, status.st_ino]

    def connect(self) -> Connection:
        """Return a new connection.

        Raises:
            UnavailableError: Nobody answers.
            RequestError: The owner speaks another version, or does not serve this user.
        """
        self.check()
        made = Connection(self.place)
        with self._lock:  # `close` goes through them, once
            self.check()
            self._all.add(made)
        try:
            made.connect()
            hello = _value(_checked(made, made.greet()))
            self.check()  # `close` could not end what was not yet connected
        except _BROKEN as error:
            made.close()
            self.check()
            raise UnavailableError(
                f"the owner of {self.root} does not answer at {self.place}: {error}"
            ) from error
        except SiltstoneError:
            made.close()
            raise
        if hello["version"] != protocol.VERSION:
            made.close()
            raise RequestError(
                f"the owner speaks version {hello['version']} of the protocol, this siltstone"
                f" {protocol.VERSION}; use one siltstone on both sides"
            )
        assert isinstance(made.sock, socket.socket)
        made.sock.settimeout(None)  # a commit or a scan takes as long as it takes
        self.hello = hello
        return made

    def check(self) -> None:
        """Refuse a link that is closed or was inherited by a fork."""
        if self.refusal is not None:
            raise ClosedError(self.refusal)

    def take(self) -> Connection:
        """Return a connection that nobody else uses."""
        self.check()
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None:
                return self.connect()
            if not found.is_broken:
                return found
            found.close()

    def give(self, connection: Connection) -> None:
        """Give a connection back, with no answer of it unread."""
        with self._lock:
            if self.refusal is None and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                if self.refusal is None:  # still
                    return
        connection.close()

    def close(self) -> None:
        """End all connections; what lives with them ends. Whoever uses one closes it."""
        with self._lock:
            self.refusal = self.refusal or f"the store {self.root} is closed"
            idle, every = list(self._idle), list(self._all)
            self._idle.clear()
        for connection in every:
            connection.end()
        for connection in idle:
            connection.close()

    def refuse_in_child(self) -> None:
        """In the child of a fork: two processes on one connection read each other's answers."""
        self._lock = threading.RLock()  # a thread that is not here may have held it
        self.refusal = f"{self.root} was joined before a fork; join it again in this process"
        for connection in list(self._all):
            with contextlib.suppress(OSError):
                if connection.sock is not None:
                    os.close(connection.sock.detach())

    # asking

    def read(self, path: str, *arguments: object, **headers: str) -> Any:
        """Ask for something that may be asked for twice."""
        return self._read(path, arguments, {}, headers)

    def ask(self, path: str, *arguments: object, **named: object) -> Any:
        """Ask for something that may be done twice, with named arguments."""
        return self._read(path, arguments, named, {})

    def once(self, path: str, *arguments: object, **named: object) -> Any:
        """Ask for something that may not be done twice, and is no statement.

        Raises:
            UnavailableError: The owner went away; it may be done.
        """
        return self._read(path, arguments, named, {}, tries=1)

    def _read(
        self,
        path: str,
        arguments: tuple[object, ...],
        named: dict[str, object],
        headers: dict[str, str],
        tries: int = 2,
    ) -> Any:
        body, kind = self._body(arguments, named)
        for is_last in [*[False] * (tries - 1), True]:
            connection = self.take()
            try:
                return self._answer(connection, path, body, kind, headers)
            except _BROKEN as error:
                connection.close()
                if is_last:
                    raise self._gone(error) from error
        raise AssertionError

    def write(self, path: str, arguments: tuple[object, ...], named: dict[str, object]) -> Any:
        """Ask for a statement, which is a transaction of its own.

        Raises:
            InDoubtError: The answer was lost.
        """
        body, kind = self._body(arguments, named)
        return self.commit(self.take(), path, body, kind)

    def commit(
        self,
        connection: Connection,
        path: str,
        body: bytes = b"",
        kind: str = protocol.VALUES_TYPE,
    ) -> Any:
        """Ask for what commits, and give the connection back.

        Raises:
            InDoubtError: The answer was lost.
            UnavailableError: The owner went away before it was asked; nothing was committed.
        """
        self._refresh(connection)
        transaction_id = connection.reserved
        headers = {protocol.ID_HEADER: transaction_id}
        try:
            value = _value(_checked(connection, self._ask(connection, path, body, kind, headers)))
        except _BROKEN as error:
            connection.close()
            reason = f"the owner's answer was lost ({in_words(error)})"
            raise InDoubtError(transaction_id, reason) from error
        except BusyError:
            connection.close()  # refused at the door, its transaction would stay open there
            raise
        except SiltstoneError:
            self.give(connection)
            raise
        except BaseException:
            connection.close()  # interrupted: the answer would come to the next who asks
            raise
        self.give(connection)
        return value

    def _refresh(self, connection: Connection) -> None:
        """Have a fresh id: of an old one `outcome` could not tell for ever what became of it."""
        if self.refusal is not None or connection.is_broken:
            connection.close()  # nothing was sent yet, so nothing is in doubt
            raise self._gone(ConnectionError("the connection ended"))
        if time.monotonic() - connection.reserved_at <= protocol.FRESH_S:
            return
        try:
            _value(_checked(connection, connection.greet()))
        except _BROKEN as error:
            connection.close()
            raise self._gone(error) from error
        except BaseException:
            connection.close()  # with what is open on it: it was to be ended
            raise

    def within(
        self,
        connection: Connection,
        path: str,
        arguments: tuple[object, ...] = (),
        named: dict[str, object] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Ask on the connection that a transaction lives with: without it, it is over."""
        self.check()
        body, kind = self._body(arguments, named or {})
        try:
            return _value(
                _checked(connection, self._ask(connection, path, body, kind, headers or {}))
            )
        except _BROKEN as error:
            connection.close()
            raise self._gone(error) from error
        except SiltstoneError:
            raise
        except BaseException:
            connection.close()
            raise

    def _answer(
        self, connection: Connection, path: str, body: bytes, kind: str, headers: dict[str, str]
    ) -> Any:
        """Return a value, or a reader that gives the connection back when it is read to its end."""
        try:
            response = _checked(connection, self._ask(connection, path, body, kind, headers))
            if response.headers.get_content_type() == protocol.ARROW_TYPE:
                return Rows(self, connection, response).reader()
            value = _value(response)
        except SiltstoneError:
            self.give(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self.give(connection)
        return value

    def _ask(
        self, connection: Connection, path: str, body: bytes, kind: str, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        return connection.ask(path, body, {"content-type": kind, **headers})

    def _body(self, arguments: tuple[object, ...], named: dict[str, object]) -> tuple[bytes, str]:
        if len(arguments) == 1 and not named and isinstance(arguments[0], pa.RecordBatchReader):
            body, kind = stream_bytes(arguments[0], self._bytes_max), protocol.ARROW_TYPE
        else:
            body, kind = encode([list(arguments), named]), protocol.VALUES_TYPE
        if len(body) > self._bytes_max:
            raise too_large(self._bytes_max)
        return body, kind

    @property
    def _bytes_max(self) -> int:
        return self.hello["body_bytes_max"]

    def _gone(self, error: BaseException) -> SiltstoneError:
        if self.refusal is not None:
            return ClosedError(self.refusal)
        return UnavailableError(
            f"the owner of {self.root} is gone ({in_words(error)}); nothing was changed by this"
            " call: connect again"
        )


class Rows:
    """The rows of one answer, as they arrive."""

    def __init__(
        self, link: Link, connection: Connection, response: http.client.HTTPResponse
    ) -> None:
        """Read what the columns are.

        Raises:
            OSError, HTTPException: The answer broke off before it said so.
        """
        self._link, self._connection, self._response = link, connection, response
        try:
            self._stream = pa.ipc.open_stream(pa.PythonFile(response, "r"))
        except pa.ArrowInvalid as error:  # to Arrow what ended early is no stream
            raise http.client.HTTPException(in_words(error)) from error

    def reader(self) -> pa.RecordBatchReader:
        """Return them as a stream; one that is left before its end closes its connection."""
        batches = self._batches()
        schema = self._stream.schema
        weakref.finalize(batches, _leave, self._connection, self._response)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            while True:
                batch, metadata = self._stream.read_next_batch_with_custom_metadata()
                found = dict(metadata or {})
                if protocol.ERROR_KEY in found or protocol.END_KEY in found:
                    break
                yield batch
            self._response.read()
        except (*_BROKEN, StopIteration, pa.ArrowException) as error:
            self._connection.close()
            self._link.check()
            raise UnavailableError(
                f"the owner of {self._link.root} is gone in the middle of a scan: {in_words(error)}"
            ) from error
        self._link.give(self._connection)
        if protocol.ERROR_KEY in found:
            raise raised(decode(found[protocol.ERROR_KEY]))


def _close_all(connections: list[Connection]) -> None:
    for connection in connections:
        connection.close()


def _leave(connection: Connection, response: http.client.HTTPResponse) -> None:
    if not response.isclosed():
        connection.close()


def _checked(
    connection: Connection, response: http.client.HTTPResponse
) -> http.client.HTTPResponse:
    """Return a response that holds an answer; raise the error that another one holds."""
    if response.length is None and not response.chunked:  # its head broke off
        response.close()
        raise http.client.HTTPException("an answer that does not say how long it is")
    connection.reserved = response.headers.get(protocol.ID_HEADER, "")
    connection.reserved_at = time.monotonic()
    if response.status == 200:
        return response
    body = response.read()
    try:
        raise raised(decode(b64decode(json.loads(body)["fields"])))
    except (ValueError, KeyError, TypeError):
        text = f"the owner answered {response.status}: {body[:200]!r}"
        raise SiltstoneError(text) from None


def _value(response: http.client.HTTPResponse) -> Any:
    return decode(response.read())


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _refuse_in_child() -> None:
    for link in list(_links):
        link.refuse_in_child()


os.register_at_fork(after_in_child=_refuse_in_child)
