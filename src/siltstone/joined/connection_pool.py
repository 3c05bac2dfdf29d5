"""Connection pool: the connections of one process to the owner of a store.

    take ─▶ ask ─▶ give back        an idle connection is used again, if its other end lives
    take ─▶ keep                    a transaction or snapshot lives with its connection

A read whose connection broke is asked once more on a new one. A write never is: its answer is lost,
so it is in doubt, under the id that was known before it was sent. Lock: one, for the list of idle
connections, and for those that `close` ends. That ends them from outside: only the thread that uses
a connection closes it. A thread that holds the lock may close: a signal's handler does.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import pyarrow as pa

from siltstone import errors
from siltstone.joined import protocol
from siltstone.joined.connection import (
    BROKEN,
    HELLO_TIMEOUT_S,
    HttpOwnerConnection,
    Message,
    rows_of,
    value_of,
)
from siltstone.joined.frames.connection import FrameOwnerConnection
from siltstone.joined.pinned_store import PinnedStore
from siltstone.joined.targets import SocketTarget, Target
from siltstone.joined.values import encode, stream_bytes, too_large
from siltstone.operations import Effect, Operation
from siltstone.process.given_ids import WithdrawnError, note
from siltstone.process.turns import NONE_CLOSED
from siltstone.storage.manifest.witness import WITNESS

IDLE_MAX = 8
OwnerConnection: TypeAlias = HttpOwnerConnection | FrameOwnerConnection


class ConnectionPool:
    """See the module. Any thread."""

    def __init__(
        self, address: Target | str, root: Path | None, *, answer_timeout_s: float | None = None
    ) -> None:
        """Connect, and check that the owner of the store at `root` answers.

        Without `root` it is whatever store the server has. An owner that is silent for
        `answer_timeout_s` is taken for gone: for clients that have another way to go.

        Raises:
            UnavailableError: No owner answers at `address`, or that of another store; or the files
                at `root` cannot be read.
            AccessError: The server wants another access token.
        """
        self.target = SocketTarget(address) if isinstance(address, str) else address
        self.root: Path | str = str(self.target) if root is None else root
        self._answer_timeout_s = answer_timeout_s
        self._lock = threading.RLock()
        self._idle: list[OwnerConnection] = []
        self._all: weakref.WeakSet[OwnerConnection] = weakref.WeakSet()
        self.refusal: str | None = None
        self.hello: dict[str, Any] = {}
        self.committed: Callable[[int], object] = lambda _: None
        """Hears the seqs of commits of transactions."""
        self.closed = NONE_CLOSED
        """The tables that are closed to first tries, as the owner said it last."""
        self.has_closed = False
        """Whether there may be some now: an owner says so with each answer."""
        self._near: frozenset[tuple[int, int]] = frozenset()
        self._pinned = PinnedStore()
        self.give(self._connect())
        if root is not None and not self.is_near(root):
            self.close()
            raise errors.UnavailableError(f"{address} serves {self.hello['path']}, not {root}")
        if root is not None:
            self._pin(root)
        weakref.finalize(self, _close_all, self._idle)
        _pools.add(self)

    def _pin(self, root: Path) -> None:
        try:
            self._pinned.pin(root)
        except BaseException:
            self.close()
            raise

    def is_near(self, root: Path) -> bool:
        """Say whether `root`, here, is the directory of the store that the owner has.

        Device and inode are those of one machine; over TCP the owner may be on another one, so what
        it writes there at that moment says it (`Witness`).

        Raises:
            UnavailableError: The owner does not answer, or cannot write.
        """
        try:
            status = root.stat()
        except OSError:
            return False
        identity = status.st_dev, status.st_ino
        if isinstance(self.target, SocketTarget) or not self.hello.get("has_witness"):
            return self.hello["identity"] == [*identity]
        if identity not in self._near and self._is_witnessed(root):
            self._near |= {identity}
        return identity in self._near

    def _is_witnessed(self, root: Path) -> bool:
        connection = self.take()
        try:
            with _answered(connection):
                sign = connection.look("witness")
        except BROKEN as error:
            raise self._gone(error) from error
        except errors.SiltstoneError:
            self.give(connection)
            raise
        self.give(connection)
        try:
            return sign in (root / WITNESS).read_text(encoding="ascii").split()
        except (OSError, ValueError):
            return False

    # connections

    def _connect(self) -> OwnerConnection:
        """Return a new connection.

        Raises:
            UnavailableError: No owner answers.
            ReplacedError: It is that of another store than before, or of an older copy.
            RequestError: The owner speaks another version, or does not serve this user.
        """
        self.check()
        bound_s = self._answer_timeout_s
        made = connection_to(self.target, bound_s or HELLO_TIMEOUT_S)
        with self._lock:  # `close` goes through them, once
            self.check()
            self._all.add(made)
        try:
            made.connect()
            hello = made.look("hello")
            self.check()  # `close` could not end what was not yet connected
            _refuse_version(hello)
            self._pinned.require_same(hello, self.root)
        except BROKEN as error:
            made.close()
            self.check()
            raise errors.UnavailableError(
                f"the owner of {self.root} does not answer at {self.target}: {error}"
            ) from error
        except errors.SiltstoneError:
            made.close()
            raise
        made.wait_at_most(bound_s)  # None: a commit or a scan takes as long as it takes
        self.hello = hello
        return made

    def wait_at_most(self, seconds: float) -> None:
        """Take an owner that is silent for so long for gone, from the next calls on."""
        with self._lock:
            self._answer_timeout_s = seconds
            for connection in self._idle:
                connection.wait_at_most(seconds)

    def check(self) -> None:
        """Refuse a pool that is closed or was inherited by a fork."""
        if self.refusal is not None:
            raise errors.ClosedError(self.refusal)

    def take(self) -> OwnerConnection:
        """Return a connection that no other caller uses."""
        self.check()
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None:
                return self._connect()
            if not found.is_broken:
                return found
            found.close()

    def give(self, connection: OwnerConnection) -> None:
        """Give a connection back, with no answer of it unread."""
        self.has_closed = connection.has_closed
        with self._lock:
            if self.refusal is None and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                if self.refusal is None:  # still
                    return
        connection.close()

    def close(self) -> None:
        """End all connections, and what lives with them. The thread that uses one closes it."""
        with self._lock:
            self.refusal = self.refusal or f"the store {self.root} is closed"
            idle, every = list(self._idle), list(self._all)
            self._idle.clear()
        self._pinned.close()
        for connection in every:
            connection.end()
        for connection in idle:
            connection.close()

    def refuse_in_child(self) -> None:
        """In the child of a fork: two processes on one connection read each other's answers."""
        self._lock = threading.RLock()  # a thread that is not here may have held it
        self.refusal = f"{self.root} was joined before a fork; join it again in this process"
        for connection in list(self._all):
            connection.forget()

    # asking

    def call(
        self,
        operation: Operation,
        face_path: str,
        arguments: Sequence[object],
        named: Mapping[str, object],
        **of: str,
    ) -> Any:
        """Ask for an operation on any connection, as often as its effect allows; `of`: `Message`.

        Raises:
            InDoubtError: The answer to a commit was lost.
            UnavailableError: The owner went away.
        """
        path = f"{face_path}/{operation.name}" if face_path else operation.name
        message = self.message(path, arguments, named, **of)
        if operation.effect is Effect.WRITE:
            return self.commit(self.take(), message)
        return self.ask(message, tries=1 if operation.effect is Effect.ONCE else 2)

    def open(self, path: str, named: Mapping[str, object]) -> tuple[OwnerConnection, Any]:
        """Open what lives with its connection; return that, and the owner's answer."""
        home = self.take()
        try:
            return home, self.within(home, self.message(path, (), named))
        except BaseException:
            home.close()
            raise

    def message(
        self,
        path: str,
        arguments: Sequence[object] = (),
        named: Mapping[str, object] | None = None,
        **of: str,
    ) -> Message:
        """Return a request with its arguments encoded; `of`: see `Message`.

        Raises:
            RequestError: They are more than one request carries, or cannot be sent.
        """
        most: int = self.hello["body_bytes_max"]
        if len(arguments) == 1 and not named and isinstance(arguments[0], pa.RecordBatchReader):
            body, kind = stream_bytes(arguments[0], most), protocol.ARROW_TYPE
        else:
            body, kind = encode([list(arguments), dict(named or {})]), protocol.VALUES_TYPE
        if len(body) > most:
            raise too_large(most)
        return Message(path, body, kind, **of)

    def ask(self, message: Message, *, tries: int = 2) -> Any:
        """Ask on any connection, `tries` times in all; return a value, or a reader of rows.

        The reader gives the connection back when it is read to its end.

        Raises:
            UnavailableError: The owner went away; with `tries` 1 it may have done it.
        """
        for left in range(tries - 1, -1, -1):
            connection = self.take()
            try:
                with _answered(connection):
                    answer = connection.ask(message)
                    if answer.is_rows:
                        give = partial(self.give, connection)
                        return rows_of(answer.body, connection.close, give, self._cut_off)
                    value = value_of(answer)
            except BROKEN as error:
                if not left or self._is_late(error):
                    raise self._gone(error) from error
            except errors.SiltstoneError:
                self.give(connection)
                raise
            else:
                self.give(connection)
                return value
        raise AssertionError

    def _is_late(self, error: BaseException) -> bool:
        return self._answer_timeout_s is not None and isinstance(error, TimeoutError)

    def within(self, connection: OwnerConnection, message: Message) -> Any:
        """Ask on the connection that a transaction lives with: without it, it is over."""
        self.check()
        try:
            with _answered(connection):
                found = value_of(connection.ask(message))
        except BROKEN as error:
            raise self._gone(error) from error
        self.has_closed = connection.has_closed
        return found

    def commit(self, connection: OwnerConnection, message: Message) -> Any:
        """Ask for something that commits, and give the connection back.

        Raises:
            InDoubtError: The answer was lost.
            UnavailableError: The owner went away before it was asked; nothing was committed.
        """
        self._refresh(connection)
        transaction_id = connection.reserved
        try:
            note(transaction_id)
        except WithdrawnError:
            self.give(connection)
            raise
        numbered = replace(message, id=transaction_id)
        try:
            with _answered(connection):
                value = value_of(connection.ask(numbered))
        except BROKEN as error:
            reason = f"the owner's answer was lost ({errors.in_words(error)})"
            raise errors.InDoubtError(transaction_id, reason) from error
        except errors.BusyError:
            connection.close()  # if it went back to the pool, its transaction would stay open
            raise
        except errors.SiltstoneError:
            self.give(connection)
            raise
        self.give(connection)
        return value

    def _refresh(self, connection: OwnerConnection) -> None:
        """Have a fresh id: of an old one `outcome` could not tell for ever what became of it."""
        if self.refusal is not None or connection.is_broken:
            connection.close()  # nothing was sent yet, so nothing is in doubt
            raise self._gone(ConnectionError("the connection ended"))
        if time.monotonic() - connection.reserved_at <= protocol.FRESH_S:
            return
        try:
            with _answered(connection):
                connection.look("hello")
        except BROKEN as error:
            raise self._gone(error) from error
        except errors.SiltstoneError:
            connection.close()  # with what is open on it: it was to be ended
            raise

    def _gone(self, error: BaseException) -> errors.SiltstoneError:
        why = f"({errors.in_words(error)}); nothing was changed by this call: connect again"
        return self._ended(why)

    def _cut_off(self, error: BaseException) -> errors.SiltstoneError:
        return self._ended(f"in the middle of a scan: {errors.in_words(error)}")

    def _ended(self, how: str) -> errors.SiltstoneError:
        if self.refusal is not None:
            return errors.ClosedError(self.refusal)
        return errors.UnavailableError(f"the owner of {self.root} is gone {how}")


def connection_to(target: Target, hello_timeout_s: float = HELLO_TIMEOUT_S) -> OwnerConnection:
    """Return a connection to a target, which `connect` makes."""
    if isinstance(target, SocketTarget):
        return FrameOwnerConnection(target, hello_timeout_s)
    return HttpOwnerConnection(target, hello_timeout_s)


def _refuse_version(hello: object) -> None:
    spoken = cast("dict[str, Any]", hello).get("version") if isinstance(hello, dict) else None
    if spoken != protocol.VERSION:
        raise errors.RequestError(
            f"the owner speaks version {spoken} of the protocol, this siltstone"
            f" {protocol.VERSION}; use one siltstone on both sides"
        )


@contextmanager
def _answered(connection: OwnerConnection) -> Generator[None]:
    """Close the connection if its answer is not read to the end: it would answer the next request.

    That is, unless the owner answered with an error.
    """
    try:
        yield
    except errors.SiltstoneError:
        raise
    except BaseException:  # interrupted, too
        connection.close()
        raise


def _close_all(connections: list[OwnerConnection]) -> None:
    for connection in connections:
        connection.close()


_pools: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()


def _refuse_in_child() -> None:
    for pool in list(_pools):
        pool.refuse_in_child()


os.register_at_fork(after_in_child=_refuse_in_child)
