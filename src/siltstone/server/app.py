"""App: the routes of an endpoint. It decodes requests, and runs the calls in threads.

    request ─▶ is the peer known ─▶ body (bounded, not too slow) ─▶ call, in a thread ─▶ response

See `joined.protocol` for the routes. One body is held whole, a stream of rows is not.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from fastapi import APIRouter, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from siltstone.deadline import Deadline, within
from siltstone.errors import BusyError, RequestError, SiltstoneError
from siltstone.joined import protocol
from siltstone.joined.values import decode, stream_of_bytes, too_large
from siltstone.server import answers
from siltstone.server.bodies import arriving
from siltstone.server.calls import READS, Call, Calls, Outcome, rows_of
from siltstone.server.sessions import Session

REQUESTS_MAX = 256
BODIES_INSIDE_MAX = 4
"""So many bodies of the largest size may be inside at once, or more of smaller ones."""
BODY_TIMEOUT_S = 300.0
"""How long a client may send nothing of a body; of this user, so perhaps in a debugger."""
ONE_PIECE_BYTES_MAX = 1 << 20

Hello = dict[str, object]
Work = Callable[[Call], Outcome]


@dataclass(slots=True)
class Desk:
    """Where requests come in: what is inside (event loop only), and who does the work."""

    calls: Calls
    hello: Callable[[], Hello]
    executor: Executor
    admit: Callable[[Request, str], Session] = lambda request, _: request.state.session
    """Returns the session of who asks for a verb, or raises why not."""
    requests_max: int = REQUESTS_MAX
    body_bytes_max: int = protocol.BODY_BYTES_MAX
    body_timeout_s: float = BODY_TIMEOUT_S
    read_timeout_s: float | None = None
    """How long a call that only reads may take, and then each batch of its rows."""
    tells_all: bool = True
    """Also what nobody foresaw, in its own words: the clients are this user."""
    inside: int = 0
    bytes_inside: int = 0
    is_closing: bool = field(default=False)

    async def serve(self, request: Request, verb: str, work: Work) -> Response:
        """Answer one request; whatever goes wrong is an answer too."""
        try:
            session = self.admit(request, verb)
        except SiltstoneError as error:
            headers = {"connection": "close"}
            return answers.refusal(RequestError(str(error)), headers, getattr(error, "status", 400))
        response = await self._response(request, session, verb, work)
        response.headers[protocol.ID_HEADER] = self.calls.reserved(session)
        return response

    async def _response(
        self, request: Request, session: Session, verb: str, work: Work
    ) -> Response:
        try:
            self._refuse(request, session)
            async with self._body(request) as body:
                if body is None:
                    most = self._bytes_inside_max
                    busy = BusyError(f"requests with {most} bytes are running; try again later")
                    return answers.refusal(busy, {})
                kind = request.headers.get("content-type", "")
                return await self._in_thread(
                    lambda: self._run(body, kind, request.headers, session, verb, work)
                )
        except SiltstoneError as error:
            # Not all of the body is read: nothing that follows on this connection could be told
            # from the rest.
            return answers.refusal(error, {"connection": "close"})

    def _refuse(self, request: Request, session: Session) -> None:
        if "transfer-encoding" in request.headers:
            raise RequestError("a request says how long it is: content-length, not chunks")
        if session.refusal is not None:
            raise session.refusal
        if int(request.headers.get("content-length") or 0) > self.body_bytes_max:
            raise too_large(self.body_bytes_max)

    @asynccontextmanager
    async def _body(self, request: Request) -> AsyncGenerator[bytes | None]:
        """Read a body; what has come of it is inside until the block ends. None: there is no room.

        One without room is read, too, and dropped: a transaction may live with the connection, and
        whoever is to try again later needs it.

        Raises:
            RequestError: It came too slowly.
        """
        chunks: list[bytes] = []
        taken, has_room = 0, True
        try:
            async for chunk in arriving(request, self.body_timeout_s):
                has_room = has_room and self.bytes_inside + len(chunk) <= self._bytes_inside_max
                if has_room:
                    chunks.append(chunk)
                    taken += len(chunk)
                    self.bytes_inside += len(chunk)
                elif taken:
                    chunks.clear()
                    self.bytes_inside -= taken
                    taken = 0
            body = b"".join(chunks)
            chunks.clear()
            yield body if has_room else None
        finally:
            self.bytes_inside -= taken

    @property
    def _bytes_inside_max(self) -> int:
        return BODIES_INSIDE_MAX * self.body_bytes_max

    async def _in_thread(self, run: Callable[[], Response]) -> Response:
        if self.inside >= self.requests_max:
            busy = BusyError(f"{self.requests_max} requests are running; try again later")
            return answers.refusal(busy, {})
        self.inside += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.executor, run)
        finally:
            self.inside -= 1

    def _run(
        self,
        body: bytes,
        kind: str,
        headers: Mapping[str, str],
        session: Session,
        verb: str,
        work: Work,
    ) -> Response:
        try:
            arguments, named = _arguments(body, kind)
            call = Call(
                session,
                verb,
                arguments,
                named,
                headers.get(protocol.TRANSACTION_HEADER),
                headers.get(protocol.SNAPSHOT_HEADER),
                headers.get(protocol.ID_HEADER),
            )
            with within(self._deadline() if verb in READS else None):
                return self._answer(work(call), session)
        except Exception as error:  # noqa: BLE001 - it becomes the answer
            return answers.refusal(answers.as_error(error, is_told=self.tells_all), {})

    def _deadline(self) -> Deadline | None:
        seconds = self.read_timeout_s
        return None if seconds is None else Deadline.after(seconds, time.monotonic)

    def _answer(self, outcome: Outcome, session: Session) -> Response:
        found = rows_of(outcome.value)
        if found is None:
            return answers.answer(outcome.value, {})
        if isinstance(found, pa.Table) and found.nbytes <= ONE_PIECE_BYTES_MAX:
            return answers.rows(found)
        batches = found.to_reader() if isinstance(found, pa.Table) else found
        return answers.Stream(
            batches,
            {},
            executor=self.executor,
            is_over=lambda: self.is_closing or session.is_closed,
            turn=outcome.turn,
            deadline=self._deadline,
            tells_all=self.tells_all,
        )


def _arguments(body: bytes, kind: str) -> tuple[list[Any], dict[str, Any]]:
    if kind == protocol.ARROW_TYPE:
        return [stream_of_bytes(body).read_all()], {}
    if not body:
        return [], {}
    found = decode(body)
    if (
        not isinstance(found, list)
        or len(found) != 2
        or not isinstance(found[0], list)
        or not isinstance(found[1], dict)
    ):
        raise RequestError("a message holds [positional arguments, named arguments]")
    return found[0], found[1]


def app_of(desk: Desk) -> FastAPI:
    """Return the app whose requests come in at `desk`."""
    app = FastAPI(title="siltstone", docs_url=None, redoc_url=None)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        refused = RequestError(f"{error.detail}: the routes are those of /openapi.json")
        return answers.refusal(refused, {}, error.status_code)

    assert unknown is not None
    include(app, desk, "/v1")
    return app


def include(app: FastAPI, desk: Desk, prefix: str) -> None:
    """Let requests below `prefix` come in at `desk`."""
    for router in (_transactions(desk), _snapshots(desk), _store(desk)):
        app.include_router(router, prefix=prefix, include_in_schema=False)


def _transactions(desk: Desk) -> APIRouter:
    routes, calls = APIRouter(prefix="/transaction"), desk.calls

    async def begin(request: Request) -> Response:
        return await desk.serve(request, "transaction", calls.begin)

    async def ask(request: Request, key: str, verb: str) -> Response:
        return await desk.serve(request, verb, lambda call: calls.of_transaction(key, call))

    routes.add_api_route("/begin", begin, methods=["POST"])
    routes.add_api_route("/{key}/{verb}", ask, methods=["POST"])
    return routes


def _snapshots(desk: Desk) -> APIRouter:
    routes, calls = APIRouter(prefix="/snapshot"), desk.calls

    async def begin(request: Request) -> Response:
        return await desk.serve(request, "snapshot", calls.open)

    async def ask(request: Request, key: str, verb: str) -> Response:
        return await desk.serve(request, verb, lambda call: calls.of_snapshot(key, call))

    routes.add_api_route("/open", begin, methods=["POST"])
    routes.add_api_route("/{key}/{verb}", ask, methods=["POST"])
    return routes


def _store(desk: Desk) -> APIRouter:
    routes, calls = APIRouter(), desk.calls

    async def hello(request: Request) -> Response:
        return await desk.serve(request, "hello", lambda _: Outcome(desk.hello()))

    async def of_table(request: Request, table: str, verb: str) -> Response:
        return await desk.serve(request, verb, lambda call: calls.of_table(table, call))

    async def of_store(request: Request, verb: str) -> Response:
        return await desk.serve(request, verb, calls.of_store)

    routes.add_api_route("/hello", hello, methods=["GET"])
    routes.add_api_route("/table/{table}/{verb}", of_table, methods=["POST"])
    routes.add_api_route("/{verb}", of_store, methods=["POST"])
    return routes


def hello_of(store_path: str, epoch: int, identity: tuple[int, int], body_bytes_max: int) -> Hello:
    """Return what a client must know before it asks for anything."""
    return {
        "version": protocol.VERSION,
        "path": store_path,
        "epoch": epoch,
        "identity": list(identity),
        "pid": os.getpid(),
        "body_bytes_max": body_bytes_max,
    }
