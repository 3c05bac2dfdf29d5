"""Exchange: the way of every request, whatever its route.

    id ─▶ who asks, may they ─▶ is there room ─▶ body (bounded, not too slow) ─▶ handler, in a
    thread ─▶ reply

Handlers are plain functions of a `Call`; whatever one raises becomes an answer. Counters are
touched by the event loop alone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltstone.deadline import Deadline, within
from siltstone.errors import BusyError, UnavailableError
from siltstone.server.bodies import arriving
from siltstone.server.rest import refusals
from siltstone.server.rest.access import Gate, Principal, Role, require
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.refusals import JSON_TYPE, invalid
from siltstone.server.rest.replies import Pieces, Reply, Streamed, encoded

SEQ_HEADER = "x-siltstone-seq"
REQUEST_ID_HEADER = "x-request-id"
ARROW_TYPES = ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file")
JSON = "json"
ARROW = "arrow"
NOTHING = "nothing"
_IDS = secrets.token_hex(6)
_numbers = count(1)  # to ask the kernel for a random id each time would cost 10 us and the GIL


@dataclass(frozen=True, slots=True)
class Call:
    """One request as a handler sees it; `path`, `query` and `headers` are decoded text."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    principal: Principal
    is_remote: bool = False
    """Whether a LanceDB remote client asks: some answers have another form for it."""

    def json(self) -> dict[str, Any]:
        """Return the object of a JSON body; without a body an empty one.

        Raises:
            Refused: It is no JSON, or no object.
        """
        if not self.body:
            return {}
        try:
            found = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(f"the body is not JSON: {error}") from None
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise invalid(f"the body is a JSON object, not a {type(found).__name__}")
        return found


Handler = Callable[[Call], Reply]
Answerer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: where it is, who may ask for it, what it takes, who answers."""

    method: str
    path: str
    role: Role
    handler: Handler
    summary: str
    takes: str = JSON
    gives: str = JSON
    query: tuple[str, ...] = ()
    is_commit_of_version: bool = False
    """Its clients take every refusal for a commit that was perhaps lost, and show no reason."""


@dataclass(slots=True)
class Counters:
    """What `/metrics` tells of requests."""

    inside: int = 0
    bytes_inside: int = 0
    by_route: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    seconds: float = 0.0


class Exchange:
    """See the module."""

    def __init__(
        self,
        gate: Gate,
        limits: Limits,
        executor: Executor,
        *,
        clock_s: Callable[[], float],
    ) -> None:
        self._gate, self._limits, self._executor = gate, limits, executor
        self._clock_s = clock_s
        self.counters = Counters()
        self.is_closing = False

    def endpoint(self, route: Route) -> Answerer:
        """Return what answers the requests of a route."""

        async def answer(request: Request) -> Response:
            begun = self._clock_s()
            response = await self._answer(route, request)
            key = (route.path, response.status_code)
            counters = self.counters
            counters.by_route[key] = counters.by_route.get(key, 0) + 1
            counters.seconds += self._clock_s() - begun
            return response

        return answer

    async def _answer(self, route: Route, request: Request) -> Response:
        request_id = id_of(request)
        try:
            principal = self._gate.principal(request.headers)
            require(principal, route.role)
            if self.is_closing and route.role is not Role.NOBODY:
                raise UnavailableError("the server closes")
            response = await self._within(route, request, principal)
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes the answer
            response = refusals.response_of(error, request_id)
            if route.is_commit_of_version:
                refusals.note(error, request_id)
            if not is_read(request):
                # Nothing that follows on this connection could be told from the rest of the body.
                response.headers["connection"] = "close"
        response.headers[REQUEST_ID_HEADER] = request_id
        return response

    async def _within(self, route: Route, request: Request, principal: Principal) -> Response:
        counters = self.counters
        # Who commits a version waits (bounded by connections): a refusal is a lost commit to it.
        if not route.is_commit_of_version and counters.inside >= self._limits.requests_max:
            raise BusyError(f"{self._limits.requests_max} requests are running; try again later")
        counters.inside += 1
        try:
            return await self._with_body(route, request, principal)
        finally:
            counters.inside -= 1

    async def _with_body(self, route: Route, request: Request, principal: Principal) -> Response:
        taken = 0
        chunks: list[bytes] = []
        most = self._limits.body_bytes_max if route.takes == ARROW else self._limits.json_bytes_max
        _refuse_length(request, most)
        try:
            async for chunk in arriving(request, self._limits.body_timeout_s):
                taken += len(chunk)
                self.counters.bytes_inside += len(chunk)
                if taken > most:
                    raise _too_large(most)
                if self.counters.bytes_inside > self._limits.bodies_bytes_max:
                    raise BusyError("the bodies of other requests fill the server; try again later")
                chunks.append(chunk)
            body = b"".join(chunks)
            chunks.clear()
            request.scope["siltstone.read"] = True
            call = Call(
                request.path_params,
                _query(request),
                request.headers,
                body,
                principal,
                bool(request.scope.get("siltstone.remote")),
            )
            end = Deadline.after(self._limits.statement_timeout_s, self._clock_s)
            run = partial(self._run, route, call, end)
            return await asyncio.get_running_loop().run_in_executor(self._executor, run)
        finally:
            self.counters.bytes_inside -= taken

    def _run(self, route: Route, call: Call, deadline: Deadline) -> Response:
        with within(deadline):
            return self._response(route.handler(call))

    def _response(self, reply: Reply) -> Response:
        headers = dict(reply.headers)
        if reply.seq is not None:
            headers[SEQ_HEADER] = str(reply.seq)
        body = reply.body
        if isinstance(body, Pieces):
            return self._streamed(body, headers)
        if isinstance(body, bytes):
            kind = reply.media_type if body else None
            return Response(body, reply.status, headers, kind)
        return Response(encoded(body), reply.status, headers, JSON_TYPE)

    def _streamed(self, pieces: Pieces, headers: dict[str, str]) -> Response:
        try:
            first = next(pieces.chunks, b"")
        except BaseException:
            pieces.close()
            raise
        return Streamed(
            pieces,
            first,
            headers,
            executor=self._executor,
            send_timeout_s=self._limits.body_timeout_s,
            is_over=lambda: self.is_closing,
            deadline=Deadline.after(self._limits.answer_timeout_s, self._clock_s),
        )


def is_read(request: Request) -> bool:
    """Say whether the body of a request was read to its end, or there is none."""
    headers = request.headers
    has_body = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return not has_body or bool(request.scope.get("siltstone.read"))


def id_of(request: Request) -> str:
    """Return the id that the client gave its request, if it may stand in a log, or a new one."""
    given = request.headers.get(REQUEST_ID_HEADER, "")
    if 0 < len(given) <= 64 and given.isascii() and given.replace("-", "").isalnum():
        return given
    return f"{_IDS}-{next(_numbers):x}"


def _query(request: Request) -> dict[str, str]:
    """Return the parameters of a query; one that comes several times is a list with commas."""
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _refuse_length(request: Request, most: int) -> None:
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared) > most:
        raise _too_large(most)


def _too_large(most: int) -> refusals.Refused:
    return refusals.Refused(
        refusals.Code.INVALID_INPUT, f"a body has at most {most} bytes here", status=413
    )
