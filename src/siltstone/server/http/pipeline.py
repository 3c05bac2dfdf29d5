"""Pipeline: the way of every request, of each use and each route.

    client, role ─▶ is there room ─▶ body (bounded, not too slow) ─▶ handler, in a thread
    ─▶ reply, in one piece or as it is read

A request that came whole (`begin`) is done by a thread and ends by a callback of the loop;
one whose body is on its way, or that waits for a turn, is a task (`answer`). Both pass the same.
SQL statements wait for a turn (`lane`) and have threads of their own; one ends with its client, or
if its client leaves its rows unread while others wait for a turn.
Routes that say whether the server lives skip the middle: the event loop answers them.
What goes wrong on the way becomes the answer, and a connection whose body was not read to its end
is closed: nothing that follows on it could be separated from the rest. Counters are touched by the
event loop alone.

Rows are sent as they are read: once one piece is sent, or while it is, the next one is read and
encoded, and no other before that was taken. A client that reads nothing for too long is cut off; so
is a stream that fails in its middle, if its format has no words for that: it has no footer, or no
end-of-stream, and is not taken for whole.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltstone.errors import BusyError, RequestError, UnavailableError
from siltstone.joined.protocol import SEQ_HEADER
from siltstone.process.deadline import Deadline, check, within
from siltstone.process.latency import Latency
from siltstone.server.http.access_log import AccessLog
from siltstone.server.http.handover import Exchange
from siltstone.server.http.lane import Lane, Turn
from siltstone.server.http.policy import RequestPolicy
from siltstone.server.http.replies import Feed, Pieces, Reply
from siltstone.server.http.request import Bodies, HttpRequest
from siltstone.server.http.route import JSON, Role, Route
from siltstone.telemetry.notices import NoticeLog
from siltstone.telemetry.spans import Spans

_log = NoticeLog("siltstone.server")
_LOOK_S, _IDLE_S = 0.5, 15.0
"""How often a feed looks whether it must end, and when it says that it is still there."""
_FOREVER = Deadline(math.inf, lambda: False)


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

    def prepare(
        self, request: HttpRequest, route: Route, caller: Any, body: bytes, /
    ) -> Any | None:
        """Decode the request of a route with a grouping, and prepare it for its group."""
        ...

    def encode(self, value: object, /) -> bytes:
        """Return a value that is the body of a reply as bytes."""
        ...

    def client_of(self, caller: Any) -> str | None:
        """Return whose share of the lane a statement takes; None: it needs none."""
        ...

    def refusal(self, error: Exception, request: HttpRequest, route: Route | None) -> Response:
        """Return the answer to a request that failed; an unexpected error is logged here."""
        ...

    def unknown(self, request: HttpRequest, status: int) -> Response:
        """Return the answer where no route is."""
        ...

    def headers(self, request: HttpRequest, caller: Any) -> dict[str, str]:
        """Return the headers that every answer has; without a caller it was not admitted."""
        ...


@dataclass(slots=True)
class Counters:
    """What is counted of requests."""

    inside: int = 0
    by_route: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    seconds: float = 0.0
    reads: Latency = field(default_factory=Latency)
    """Requests that read rows, until their answer begins."""


class Watchers(NamedTuple):
    """What else hears of requests; None: nothing."""

    access: AccessLog | None = None
    spans: Spans | None = None


class Pipeline:
    """See the module."""

    def __init__(
        self,
        wire: WireFormat,
        policy: RequestPolicy,
        executor: Executor,
        *,
        lane: Lane | None = None,
        watchers: Watchers | None = None,
    ) -> None:
        self.wire, self.policy, self.lane = wire, policy, lane
        self._access, self._spans = watchers or Watchers()
        self.executor = executor
        self.counters, self.bodies = Counters(), Bodies()
        self.is_closing = False

    def takes_whole(self, route: Route) -> bool:
        """Say whether `begin` takes requests for a route; those of a lane wait for their turn."""
        return self.lane is None or not route.is_statement

    def begin(
        self, route: Route, request: HttpRequest, body: bytes, send: Callable[[Response], None]
    ) -> Exchange | None:
        """Begin to answer a request that came whole; return it if a thread has to go on."""
        exchange, policy = Exchange(self, route, request, time.monotonic(), send), self.policy
        try:
            exchange.caller = self._admitted(route, request)
            if route.is_at_once:
                exchange.response = self._run(route, request, exchange.caller, b"", None)
                self.end(exchange)
                return None
            if not policy.drains:
                exchange.is_counted = self._enter(self._most_inside(route))
            self.bodies.take(request, body, self._most_of_body(route), policy)
            exchange.body = body
            if policy.drains:
                exchange.is_counted = self._enter(self._most_inside(route))
        except Exception as error:  # noqa: BLE001 - each error becomes the answer
            exchange.error = error
            self.end(exchange)
            return None
        exchange.until = self.end_in(policy.statement_timeout_s if route.is_timed else None)
        return exchange

    def run(self, exchange: Exchange) -> Response:
        """Run a request, in a thread."""
        request = exchange.request
        return self._run(exchange.route, request, exchange.caller, exchange.body, exchange.until)

    def prepare(self, exchange: Exchange) -> Any | None:
        """Return what the group of its route needs of a request; None: it runs alone."""
        with within(exchange.until):
            found = self.wire.prepare(
                exchange.request, exchange.route, exchange.caller, exchange.body
            )
            check()
            return found

    def end(self, exchange: Exchange) -> None:
        """Send the answer of a request that was begun; the event loop's thread."""
        self.bodies.nbytes -= len(exchange.body)
        self.counters.inside -= exchange.is_counted
        route, request, response = exchange.route, exchange.request, exchange.response
        if response is None:
            response = self.wire.refusal(cast("Exception", exchange.error), request, route)
        response = self._headed(response, route, request, exchange.caller)
        self._count(route, request, exchange.caller, response, exchange.begun_s)
        exchange.send(response)

    def _admitted(self, route: Route, request: HttpRequest) -> Any:
        caller = self.wire.admit(request, route)
        if self.is_closing and route.role is not Role.NOBODY:
            raise UnavailableError("the server closes")
        return caller

    async def answer(self, route: Route, request: HttpRequest, send: Send) -> None:
        """Answer one request whose body is on its way, or that waits for a turn."""
        begun, caller = time.monotonic(), None
        try:
            caller = self._admitted(route, request)
            if route.is_at_once:
                response = self._run(route, request, caller, b"", None)
            else:
                response = await self._inside(route, request, caller)
        except Exception as error:  # noqa: BLE001 - each error becomes the answer
            response = self.wire.refusal(error, request, route)
        response = self._headed(response, route, request, caller)
        self._count(route, request, caller, response, begun)
        await response(request.scope, request.receive, send)

    def _count(
        self, route: Route, request: HttpRequest, caller: Any, response: Response, begun_s: float
    ) -> None:
        key, counters = (route.path, response.status_code), self.counters
        counters.by_route[key] = counters.by_route.get(key, 0) + 1
        took_s = time.monotonic() - begun_s
        counters.seconds += took_s
        if route.is_read:
            counters.reads.add(took_s)
        if self._access is not None:
            client = (self.wire.client_of(caller) if caller is not None else None) or "-"
            self._access.note(*key, took_s, client, request)

    def _headed(
        self, response: Response, route: Route, request: HttpRequest, caller: Any
    ) -> Response:
        """Return a response with the headers of every answer, or one that says why it has none."""
        try:
            response.headers.update(self.wire.headers(request, caller))
        except Exception as error:  # noqa: BLE001 - rows that would not be sent are given up
            if isinstance(response, StreamedResponse):
                response.give_up()
            response = self.wire.refusal(error, request, route)
        if not request.may_go_on:
            response.headers["connection"] = "close"
        return response

    async def _inside(self, route: Route, request: HttpRequest, caller: Any) -> Response:
        policy, counters = self.policy, self.counters
        body, is_counted = b"", False
        most_inside = self._most_inside(route)
        try:
            if not policy.drains:
                is_counted = self._enter(most_inside)
            body = await self.bodies.read(request, self._most_of_body(route), policy)
            if policy.drains:
                is_counted = self._enter(most_inside)
            if route.is_statement and self.lane is not None:
                return await self._in_turn(self.lane, route, request, caller, body)
            end = self.end_in(policy.statement_timeout_s if route.is_timed else None)
            return await self._in_thread(self.executor, route, request, caller, body, end)
        finally:
            self.bodies.nbytes -= len(body)
            counters.inside -= is_counted

    async def _in_turn(
        self, lane: Lane, route: Route, request: HttpRequest, caller: Any, body: bytes
    ) -> Response:
        """Run a statement in the lane; a streamed response ends the turn by itself."""
        turn, seconds = lane.ask(self.wire.client_of(caller)), self.policy.statement_timeout_s
        loop = asyncio.get_running_loop()
        gone = loop.create_task(_disconnected(request.receive))
        try:
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait((turn.may_run, gone), timeout=seconds, return_when=first)
            if gone.done():
                raise RequestError("the client went away")
            if not turn.may_run.done():
                text = f"other statements left this one no turn for {seconds:g} s; try again later"
                raise BusyError(text)
            end = replace(self.end_in(seconds) or _FOREVER, is_gone=gone.done)
            response = await self._in_thread(lane.executor, route, request, caller, body, end)
        except BaseException:
            gone.cancel()
            lane.leave(turn)
            raise
        if isinstance(response, StreamedResponse):
            # It looks on with the same task: threads that read ahead still have its deadline.
            response.go_on_in(lane, turn, gone)
        else:
            gone.cancel()
            lane.leave(turn)
        return response

    async def _in_thread(self, executor: Executor, *request: Any) -> Response:
        """Run a request in a thread; only it closes a response that comes too late."""
        work = executor.submit(self._run, *request)
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:  # the server stops; the thread goes on
            work.add_done_callback(_close_late)
            raise

    def _most_inside(self, route: Route) -> int:
        # A commit of a version waits (bounded by connections): its client takes a refusal for a
        # commit that was perhaps lost.
        return sys.maxsize if route.is_commit_of_version else self.policy.requests_max

    def _most_of_body(self, route: Route) -> int:
        policy = self.policy
        return policy.json_bytes_max if route.takes == JSON else policy.body_bytes_max

    def _enter(self, most_inside: int) -> bool:
        """Count a request that is inside now."""
        if self.counters.inside >= most_inside:
            raise BusyError(f"{most_inside} requests are running; try again later")
        self.counters.inside += 1
        return True

    def _run(
        self, route: Route, request: HttpRequest, caller: Any, body: bytes, end: Deadline | None
    ) -> Response:
        with within(end):
            if self._spans is None or route.is_at_once:
                return self.respond(self.wire.run(request, route, caller, body))
            with self._spans.request(request.scope["method"], route.path, request.headers) as span:
                response = self.respond(self.wire.run(request, route, caller, body))
                span.set_attribute("http.response.status_code", response.status_code)
                return response

    def respond(self, reply: Reply) -> Response:
        """Return what sends a reply; of rows the first piece is made here."""
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
        return StreamedResponse(self, pieces, first, headers)

    @staticmethod
    def end_in(seconds: float | None) -> Deadline | None:
        """Return when what may take so long must have ended; None is for ever."""
        return None if seconds is None else Deadline.after(seconds, time.monotonic)


class StreamedResponse(Response):
    """The response that sends `Pieces`. The first one is made already: its errors are answers.

    A thread closes what is left of them once all was read, or it was given up.
    """

    def __init__(
        self, pipeline: Pipeline, pieces: Pieces, first: bytes, headers: dict[str, str]
    ) -> None:
        super().__init__(None, 200, headers, pieces.media_type)
        del self.headers["content-length"]  # it is not known yet
        self._pipeline, self._pieces, self._first = pipeline, pieces, first
        self._end = pipeline.end_in(pipeline.policy.answer_timeout_s)
        self._send_timeout_s = pipeline.policy.send_timeout_s
        self._lock, self._has_failed, self._is_given_up = threading.Lock(), False, False
        self._executor = pipeline.executor
        self._seat: tuple[Lane, Turn] | None = None
        self._gone: asyncio.Task[None] | None = None

    def go_on_in(self, lane: Lane, turn: Turn, gone: asyncio.Task[None]) -> None:
        """Read the rows in the lane; the turn ends with them. `gone` ends if the client goes."""
        self._executor, self._seat, self._gone = lane.executor, (lane, turn), gone
        self._send_timeout_s = lane.policy.send_timeout_s
        self._end = self._pipeline.end_in(lane.policy.answer_timeout_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the rows end, or the client does not read them any more."""
        self._gone = self._gone or asyncio.get_running_loop().create_task(_disconnected(receive))
        try:
            await self._send_all(send, self._gone)
        except Exception as error:  # noqa: BLE001 - the answer has begun: it can only be cut off
            _log.warning("a stream of rows was cut off: %s: %s", type(error).__name__, error)
            scope["state"]["connection"].transport.abort()
        finally:
            self.give_up()

    def give_up(self) -> None:
        """End with what was sent, which may be nothing. The event loop's thread."""
        if self._gone is not None:
            self._gone.cancel()
        self._end_reading()

    def _end_reading(self) -> None:
        """Close the rows, in a thread, and leave the turn then; a second time does nothing."""
        if self._is_given_up:
            return
        self._is_given_up = True
        seat, self._seat = self._seat, None
        try:
            self._executor.submit(self._close_in, asyncio.get_running_loop(), seat)
        except RuntimeError:  # the server is closed
            self.close()

    def _close_in(self, loop: asyncio.AbstractEventLoop, seat: tuple[Lane, Turn] | None) -> None:
        try:
            self.close()
        finally:
            if seat is not None:
                lane, turn = seat
                with suppress(RuntimeError):  # the loop is closed: no request waits for a turn
                    loop.call_soon_threadsafe(lane.leave, turn)

    async def _send_all(self, send: Send, gone: asyncio.Task[None]) -> None:
        loop, policy = asyncio.get_running_loop(), self._pipeline.policy
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        piece: bytes | None = self._first
        while piece is not None:
            if gone.done():
                _log.info("a client went away while it read rows")
                return
            read = partial(loop.run_in_executor, self._executor, self.read_next)
            feed = self._pieces.feed
            upcoming = read() if policy.reads_ahead and feed is None else None
            try:
                await self._send(send, piece)
            except BusyError as error:
                last = self._failed(error)  # in the place of the piece that was not sent
                self._end_reading()
                await self._send(send, last)
                break
            finally:
                if upcoming is not None:  # also where sending failed: `close` would wait for it
                    await asyncio.wait([upcoming])
            piece = await (upcoming or (read() if feed is None else self._news(feed, read, gone)))
        self._end_reading()  # the client may take its time for the last of it
        await self._send(send, b"", more_body=False)

    async def _news(
        self, feed: Feed, read: Callable[[], Awaitable[bytes | None]], gone: asyncio.Task[None]
    ) -> bytes | None:
        """Return the next piece of a feed, once there is one; no thread waits for it."""
        loop, idle_s = asyncio.get_running_loop(), 0.0
        while not (gone.done() or self._pipeline.is_closing or self._is_at_end()):
            told = asyncio.Event()
            with feed.heard(partial(_tell, loop, told)):
                piece = await read()
                if piece != b"":
                    return piece
                if idle_s >= _IDLE_S:
                    return feed.idle
                idle_s += _LOOK_S
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await told.wait()
        return None

    def _is_at_end(self) -> bool:
        return self._end is not None and self._end.is_over()

    async def _send(self, send: Send, piece: bytes, *, more_body: bool = True) -> None:
        """Send a piece, once the client took enough of those before.

        Raises:
            TimeoutError: It took nothing for too long.
            BusyError: It took nothing for a while, and another statement needs the turn.
        """
        message = {"type": "http.response.body", "body": piece, "more_body": more_body}
        async with asyncio.timeout(self._send_timeout_s):
            if self._seat is None:
                await send(message)
                return
            lane, turn = self._seat
            loop, unread_s = asyncio.get_running_loop(), lane.policy.unread_s
            sending = asyncio.ensure_future(send(message))
            timer = loop.call_later(unread_s, lane.note_unread, turn)
            try:
                first = asyncio.FIRST_COMPLETED
                await asyncio.wait((sending, turn.must_end), return_when=first)
                if turn.must_end.done():
                    raise _unread(unread_s)
                await sending
            finally:
                timer.cancel()
                lane.note_read(turn)
                sending.cancel()

    def read_next(self) -> bytes | None:
        """Return the next piece, None at the end."""
        pieces, pipeline = self._pieces, self._pipeline
        with self._lock:
            if self._has_failed:
                return None
            try:
                with within(self._until()):
                    check()
                    if pipeline.is_closing:
                        raise UnavailableError("the server closes")
                    return next(pieces.chunks, None)
            except Exception as error:  # noqa: BLE001 - answered in the format's own words, or raised
                return self._failed(error)

    def _failed(self, error: Exception) -> bytes:
        """Return the last piece of rows that ended with an error, if their format has one."""
        if self._pieces.told is None:
            raise error
        self._has_failed = True
        return self._pieces.told(error)

    def _until(self) -> Deadline | None:
        """Return the deadline of the next piece."""
        end, piece = self._end, self._pipeline.end_in(self._pipeline.policy.piece_timeout_s)
        if self._gone is None or end is None:
            return end or piece
        end.check()
        return replace(piece or end, is_gone=self._gone.done)

    def close(self) -> None:
        """Give up what is left. It waits for a piece that is just read."""
        with self._lock:
            self._pieces.close()


def _tell(loop: asyncio.AbstractEventLoop, told: asyncio.Event) -> None:
    """Wake who waits in a loop, from any thread."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(told.set)


def _close_late(work: Future[Response]) -> None:
    """Close the response of a request that was cancelled meanwhile; its thread calls this."""
    if not work.cancelled() and work.exception() is None:
        response = work.result()
        if isinstance(response, StreamedResponse):
            response.close()


def _unread(seconds: float) -> BusyError:
    return BusyError(
        f"these rows were left unread for {seconds:g} s while other statements waited for a turn;"
        " read them as they come, or take them all at once"
    )


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
