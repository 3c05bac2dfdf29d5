"""Frames: all connections of one Unix socket, and how their requests are answered.

    readable ─▶ read ─▶ whole requests ─┬─▶ commits of a few rows: one group, made here and now
                                        └─▶ all others: the pipeline, as those of HTTP

One epoll has all connections of the socket, and the event loop has that epoll: one turn of the
loop reads from all who sent something, and answers them, without a task or a callback for each.
Commits of a few rows (`Commits`) are made in the loop's thread: to change threads costs more than
they do. Meanwhile others wait, at most for the sync of a group and of the one before it.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from siltstone.joined import protocol
from siltstone.joined.frames import frame
from siltstone.server.http.handover import Exchange, HandOver
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.request import HttpRequest
from siltstone.server.http.router import Router
from siltstone.server.rpc.commits import Commits, Prepared
from siltstone.server.rpc.frame_connection import FrameConnection, FrameRequest
from siltstone.server.sessions import Sessions

ROUNDS_MAX = 16
"""So many groups at most before the loop's other work has its turn."""
_EVENTS_MAX = 64


class FrameConnections:
    """All connections of one socket (see the module). The event loop's thread."""

    def __init__(
        self,
        router: Router,
        pipeline: Pipeline,
        sessions: Sessions,
        commits: Commits,
        *,
        user: int,
        submit: Callable[..., object],
        handover: HandOver,
    ) -> None:
        """Answer the requests of connections; `submit` runs in a thread what may wait."""
        self.pipeline, self.sessions, self.user, self.submit = pipeline, sessions, user, submit
        self._router, self._commits, self._handover = router, commits, handover
        self._epoll = select.epoll()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched: dict[int, FrameConnection] = {}
        self._group: list[_Begun] = []
        self._exchanges: list[Exchange] = []
        self._is_due = False

    def made(self, *, server_state: Any, **_: Any) -> FrameConnection:
        """Return the protocol of a connection that was accepted."""
        return FrameConnection(self, server_state, asyncio.get_running_loop())

    def close(self) -> None:
        """Close the epoll, here alone: a forked child has its own copy of it."""
        self._epoll.close()

    @property
    def flags(self) -> int:
        """What every answer says now."""
        return frame.CLOSED if self._commits.has_closed else 0

    # connections

    def watch(self, fd: int, connection: FrameConnection) -> None:
        """Read from a connection when something comes."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._epoll.fileno(), self._answer_all)
        self._watched[fd] = connection
        self._commits.expect(is_joined=True)
        self._epoll.register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        """Read no more; its descriptor is not closed yet."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            self._commits.expect(is_joined=bool(self._watched))

    def pause(self, fd: int) -> None:
        """Hear only that the connection ends."""
        self._epoll.modify(fd, 0)

    def resume(self, fd: int) -> None:
        """Hear again of what comes."""
        if fd in self._watched:
            self._epoll.modify(fd, select.EPOLLIN)

    def _answer_all(self) -> None:
        """Read from all who sent something, and answer them; again while there are some."""
        for _ in range(ROUNDS_MAX):
            events = self._epoll.poll(0, _EVENTS_MAX)
            if not events:
                return
            self._is_due = True
            for fd, event in events:
                found = self._watched.get(fd)
                if found is not None:
                    found.readable(event)
            self._pass_on()

    # requests

    def begin(self, connection: FrameConnection, head: frame.Head, body: memoryview) -> None:
        """Begin a whole request; `_pass_on` goes on with it."""
        begun = _Begun(connection, head, body)
        try:
            begun.prepared = self._prepared(begun)
        except Exception as error:  # noqa: BLE001 - each error becomes the answer
            begun.outcome = error
        if begun.prepared is not None or begun.outcome is not None:
            self._group.append(begun)
        else:
            self._begin_alone(begun)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._pass_on)

    def _prepared(self, begun: _Begun) -> Prepared | None:
        pipeline, session = self.pipeline, begun.connection.session()
        if pipeline.is_closing or session.refusal is not None:
            return None
        if pipeline.counters.inside + len(self._group) >= pipeline.policy.requests_max:
            return None
        return self._commits.prepare(session, begun.head, begun.body)

    def _pass_on(self) -> None:
        """Make the commits of the requests that were begun, and give the others to threads."""
        self._is_due = False
        group, self._group = self._group, []
        for first in range(0, len(group), _EVENTS_MAX):
            self._answer_group(group[first : first + _EVENTS_MAX])
        if self._exchanges:
            exchanges, self._exchanges = self._exchanges, []
            self._handover.give(exchanges)

    def _answer_group(self, group: Sequence[_Begun]) -> None:
        prepared = [begun.prepared for begun in group if begun.prepared is not None]
        outcomes = iter(self._commits.run(prepared))
        for begun in group:
            outcome = next(outcomes) if begun.prepared is not None else begun.outcome
            if outcome is None:
                self._begin_alone(begun)
            elif isinstance(outcome, BaseException):
                self._refuse(begun.connection, outcome)
            else:
                reserved = self.sessions.reserved(begun.connection.session())
                begun.connection.send(200, 0, reserved, outcome)

    def _refuse(self, connection: FrameConnection, error: BaseException) -> None:
        response = self.pipeline.wire.refusal(
            cast("Exception", error), cast("HttpRequest", None), None
        )
        response.headers[protocol.ID_HEADER] = self.sessions.reserved(connection.session())
        connection.send_answer(response)

    def _begin_alone(self, begun: _Begun) -> None:
        connection = begun.connection
        request = cast("HttpRequest", FrameRequest(connection, begun.head, bytes(begun.body)))
        found = self._router.find(request)
        if found is None:
            connection.send_answer(self.pipeline.wire.unknown(request, 404))
            return
        route, pipeline = found
        if pipeline.takes_whole(route):
            exchange = pipeline.begin(route, request, bytes(begun.body), connection.send_answer)
            if exchange is not None:
                self._exchanges.append(exchange)
        else:
            connection.run(pipeline.answer(route, request, connection.send_piece))


class _Begun(msgspec.Struct, eq=False):
    """One whole request: its error, or what its group commits; neither: it goes alone."""

    connection: FrameConnection
    head: frame.Head
    body: memoryview
    prepared: Prepared | None = None
    outcome: Exception | None = None
