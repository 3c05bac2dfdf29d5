"""Hand-over: requests that came whole go from the event loop to threads, and answers come back.

    whole ──with all of this turn of the loop──▶ begun ─▶ a thread ─▶ answered ─▶ sent, in the loop
             one job for a group, one for each other        one wake-up for all that are answered

To change threads costs as much as a small request. So what a thread may do for several requests at
once (`Grouping`) is passed on as one job, and a thread that ends a group looks for the next one.
At most `GROUPS_MAX` groups run: one prepares its commits while another one waits for its sync.
What waits is bounded by the requests that a pipeline lets in.

Lock: one, for the requests that wait for their group and the count of groups that run.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.responses import Response

from siltstone.errors import UnavailableError
from siltstone.process.deadline import Deadline
from siltstone.server.http.replies import Reply
from siltstone.server.http.request import HttpRequest
from siltstone.server.http.route import Route
from siltstone.telemetry.notices import NoticeLog

GROUP_MAX = 64
"""Requests of one group."""
GROUPS_MAX = 2
GROUP_BODY_BYTES_MAX = 16 << 10
"""A longer body goes alone: to read it would hold the others up."""
_log = NoticeLog("siltstone.server")


class Responder(Protocol):
    """What a thread does for a request; `Pipeline` does it."""

    executor: Executor

    def run(self, exchange: Exchange) -> Response: ...

    def prepare(self, exchange: Exchange) -> Any | None: ...

    def respond(self, reply: Reply) -> Response: ...

    def end(self, exchange: Exchange) -> None: ...


@dataclass(eq=False, slots=True)
class Exchange:
    """One request that came whole, and its answer."""

    work: Responder
    route: Route
    request: HttpRequest
    begun_s: float
    send: Callable[[Response], None]
    caller: Any = None
    body: bytes = b""
    until: Deadline | None = None
    is_counted: bool = False
    response: Response | None = None
    error: BaseException | None = None


@dataclass(eq=False, slots=True)
class _Waiting:
    """Requests of one route that wait for their group, and how many groups of it run."""

    requests: list[Exchange] = field(default_factory=list[Exchange])
    running: int = 0


class HandOver:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._answered: deque[Exchange] = deque()
        self._is_woken = False
        self._inside = 0
        self._idle: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # the event loop's side

    def give(self, exchanges: Sequence[Exchange]) -> None:
        """Pass requests on; `Responder.end` is called with each, by the loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._inside += len(exchanges)
        groups: dict[int, tuple[Executor, _Waiting]] = {}
        for exchange in exchanges:
            executor, grouping = exchange.work.executor, exchange.route.grouping
            if grouping is None or len(exchange.body) > GROUP_BODY_BYTES_MAX:
                self._submit(executor, exchange)
                continue
            waiting = self._waiting.setdefault(id(grouping), _Waiting())
            with self._lock:
                waiting.requests.append(exchange)
            groups[id(grouping)] = executor, waiting
        for executor, waiting in groups.values():
            with self._lock:
                is_due = bool(waiting.requests) and waiting.running < GROUPS_MAX
                waiting.running += is_due
            if is_due:
                self._begin_group(executor, waiting)

    def _begin_group(self, executor: Executor, waiting: _Waiting) -> None:
        try:
            executor.submit(self._run_groups, waiting)
        except RuntimeError:
            with self._lock:
                waiting.running -= 1
                left, waiting.requests = waiting.requests, []
            self._refuse(left)

    def _submit(self, executor: Executor, exchange: Exchange) -> None:
        try:
            executor.submit(self._run, exchange)
        except RuntimeError:
            self._refuse([exchange])

    def _refuse(self, exchanges: Sequence[Exchange]) -> None:
        for exchange in exchanges:
            exchange.error = UnavailableError("the server closes")
        self._give_back(exchanges)

    def _end_answered(self) -> None:
        self._is_woken = False  # first: what is answered from here on wakes the loop again
        answered = self._answered
        while answered:
            exchange = answered.popleft()
            self._inside -= 1
            try:
                exchange.work.end(exchange)
            except Exception as error:  # noqa: BLE001 - the others have answers, too
                _log.error("an answer was not sent", exc_info=error)
                exchange.request.connection.transport.abort()
        if not self._inside and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    @property
    def is_busy(self) -> bool:
        """Whether something was passed on, and is not answered yet."""
        return self._inside > 0

    async def idle(self) -> None:
        """Wait until all that was passed on is answered."""
        if self._inside:
            self._idle = self._idle or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def close(self) -> None:
        """Close the rows of answers that will not be sent: the loop and the threads have ended."""
        while self._answered:
            close = getattr(self._answered.popleft().response, "close", None)
            if close is not None:
                close()

    # the threads' side

    def _run(self, exchange: Exchange) -> None:
        try:
            exchange.response = exchange.work.run(exchange)
        except BaseException as error:  # noqa: BLE001 - each error becomes the answer
            exchange.error = error
        self._give_back([exchange])

    def _run_groups(self, waiting: _Waiting) -> None:
        while True:
            with self._lock:
                group = waiting.requests[:GROUP_MAX]
                del waiting.requests[:GROUP_MAX]
                if not group:
                    waiting.running -= 1
                    return
            self._give_back(self._run_group(group))

    def _run_group(self, group: Sequence[Exchange]) -> Sequence[Exchange]:
        """Return those that are answered; the others went alone."""
        prepared = [(exchange, self._prepared(exchange)) for exchange in group]
        together = [each for each in prepared if each[1] is not None]
        if together:
            grouping = together[0][0].route.grouping
            assert grouping is not None
            try:
                replies = grouping.run([found for _, found in together])
            except BaseException as error:  # noqa: BLE001 - as in `_run`
                replies = [error] * len(together)
            for (exchange, _), reply in zip(together, replies, strict=True):
                self._answer(exchange, reply)
        answered: list[Exchange] = []
        for exchange in group:
            if exchange.response is None and exchange.error is None:
                self._submit(exchange.work.executor, exchange)
            else:
                answered.append(exchange)
        return answered

    def _prepared(self, exchange: Exchange) -> Any | None:
        try:
            return exchange.work.prepare(exchange)
        except BaseException as error:  # noqa: BLE001 - as in `_run`
            exchange.error = error
            return None

    def _answer(self, exchange: Exchange, reply: Reply | BaseException | None) -> None:
        """Note the answer; None: there is none, the request goes alone."""
        try:
            if isinstance(reply, BaseException):
                exchange.error = reply
            elif reply is not None:
                exchange.response = exchange.work.respond(reply)
        except BaseException as error:  # noqa: BLE001 - as in `_run`
            exchange.error = error

    def _give_back(self, exchanges: Sequence[Exchange]) -> None:
        self._answered.extend(exchanges)
        if exchanges and not self._is_woken:
            self._is_woken = True
            assert self._loop is not None
            with suppress(RuntimeError):  # the loop is closed: `close` has what is left
                self._loop.call_soon_threadsafe(self._end_answered)
