"""Pipeline: the way of every request, of each use and each route.

    client, role ─▶ is there room ─▶ body (bounded, not too slow) ─▶ handler, in a thread
    ─▶ reply, in one piece or as it is read

What goes wrong on the way becomes the answer, and a connection whose body was not read to its end
is closed: nothing that follows on it could be told from the rest. Counters are touched by the event
loop alone.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Send

from siltstone.deadline import Deadline, within
from siltstone.errors import BusyError, UnavailableError
from siltstone.joined.protocol import SEQ_HEADER
from siltstone.server.http.bodies import Bodies
from siltstone.server.http.policy import RequestPolicy
from siltstone.server.http.replies import Pieces, Reply, StreamedResponse
from siltstone.server.http.request import HttpRequest
from siltstone.server.http.route import JSON, Role, Route


class WireFormat(Protocol):
    """How one use admits clients, and spells what it is asked and what it answers."""

    def admit(self, request: HttpRequest, route: Route) -> Any:
        """Return the client, if it may ask for this; the event loop's thread.

        Raises:
            SiltstoneError: It may not.
        """
        ...

    def run(self, request: HttpRequest, route: Route, caller: Any, body: bytes) -> Reply:
        """Decode the request and run its handler, in a thread that may wait."""
        ...

    def encode(self, value: object, /) -> bytes:
        """Return a value that is the body of a reply as bytes."""
        ...

    def refusal(self, error: Exception, request: HttpRequest, route: Route | None) -> Response:
        """Return the answer to a request that failed; what nobody foresaw is logged here."""
        ...

    def unknown(self, request: HttpRequest, status: int) -> Response:
        """Return the answer where no route is."""
        ...

    def headers(self, request: HttpRequest, caller: Any) -> dict[str, str]:
        """Return the headers that every answer has; without a caller nobody was admitted."""
        ...


@dataclass(slots=True)
class Counters:
    """What is told of requests."""

    inside: int = 0
    by_route: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    seconds: float = 0.0


class Pipeline:
    """See the module."""

    def __init__(
        self,
        wire: WireFormat,
        policy: RequestPolicy,
        executor: Executor,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wire, self.policy = wire, policy
        self._executor, self._clock_s = executor, clock_s
        self.counters, self.bodies = Counters(), Bodies()
        self.is_closing = False

    async def answer(self, route: Route, request: HttpRequest, send: Send) -> None:
        """Answer one request; an error is an answer, too."""
        begun, caller = self._clock_s(), None
        try:
            caller = self.wire.admit(request, route)
            if self.is_closing and route.role is not Role.NOBODY:
                raise UnavailableError("the server closes")
            response = await self._inside(route, request, caller)
        except Exception as error:  # noqa: BLE001 - each error becomes the answer
            response = self.wire.refusal(error, request, route)
            if not request.may_go_on:
                response.headers["connection"] = "close"
        response.headers.update(self.wire.headers(request, caller))
        key, counters = (route.path, response.status_code), self.counters
        counters.by_route[key] = counters.by_route.get(key, 0) + 1
        counters.seconds += self._clock_s() - begun
        await response(request.scope, request.receive, send)

    async def _inside(self, route: Route, request: HttpRequest, caller: Any) -> Response:
        policy, counters = self.policy, self.counters
        body, is_counted = b"", not policy.drains
        # A commit of a version waits (bounded by connections): its client takes a refusal for a
        # commit that was perhaps lost.
        most_inside = sys.maxsize if route.is_commit_of_version else policy.requests_max
        if is_counted:
            if counters.inside >= most_inside:
                raise _full(policy)
            counters.inside += 1
        try:
            most = policy.json_bytes_max if route.takes == JSON else policy.body_bytes_max
            body = await self.bodies.read(request, most, policy)
            if not is_counted:
                if counters.inside >= most_inside:
                    raise _full(policy)
                counters.inside += 1
                is_counted = True
            seconds = policy.statement_timeout_s if route.is_timed else None
            end = None if seconds is None else Deadline.after(seconds, self._clock_s)
            run = self._run, route, request, caller, body, end
            return await asyncio.get_running_loop().run_in_executor(self._executor, *run)
        finally:
            self.bodies.nbytes -= len(body)
            counters.inside -= is_counted

    def _run(
        self, route: Route, request: HttpRequest, caller: Any, body: bytes, end: Deadline | None
    ) -> Response:
        with within(end):
            reply = self.wire.run(request, route, caller, body)
            headers, found = reply.headers, reply.body
            if reply.seq is not None:
                headers = {**headers, SEQ_HEADER: str(reply.seq)}
            if isinstance(found, Pieces):
                return self.streamed(found, headers)
            if not isinstance(found, bytes):
                found = self.wire.encode(found)
            return Response(found, reply.status, headers, reply.media_type if found else None)

    def streamed(self, pieces: Pieces, headers: dict[str, str]) -> StreamedResponse:
        """Return the response that sends `pieces`; the first of them is made here."""
        try:
            first = next(pieces.chunks, b"")
        except BaseException:
            pieces.close()
            raise
        policy, end = self.policy, None
        if policy.answer_timeout_s is not None:
            end = Deadline.after(policy.answer_timeout_s, self._clock_s)
        seconds = policy.piece_timeout_s if end is None else None
        return StreamedResponse(
            pieces,
            first,
            headers,
            executor=self._executor,
            policy=policy,
            is_over=lambda: self.is_closing,
            deadline=lambda: end if seconds is None else Deadline.after(seconds, self._clock_s),
        )


def _full(policy: RequestPolicy) -> BusyError:
    return BusyError(f"{policy.requests_max} requests are running; try again later")
