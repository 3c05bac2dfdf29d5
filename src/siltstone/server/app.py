"""App: the routes of an endpoint. It decodes requests, and runs the calls in threads.

    request ─▶ is the peer known, is there room ─▶ body (bounded) ─▶ call, in a thread ─▶ response

See `joined.protocol` for the routes. One body is held whole, a stream of rows is not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from siltstone.errors import BusyError, RequestError
from siltstone.joined import protocol
from siltstone.joined.values import decode, stream_of_bytes
from siltstone.server import answers
from siltstone.server.calls import Call, Calls, Outcome, rows_of
from siltstone.server.sessions import Session

REQUESTS_MAX = 256

Hello = dict[str, object]
Work = Callable[[Call], Outcome]


@dataclass(slots=True)
class Desk:
    """Where requests come in: how many are inside (event loop only), and who does the work."""

    calls: Calls
    hello: Callable[[], Hello]
    executor: Executor
    requests_max: int = REQUESTS_MAX
    body_bytes_max: int = protocol.BODY_BYTES_MAX
    inside: int = 0
    is_closing: bool = field(default=False)

    async def serve(self, request: Request, verb: str, work: Work) -> Response:
        """Answer one request; whatever goes wrong is an answer too."""
        session: Session = request.state.session
        response = await self._response(request, session, verb, work)
        response.headers[protocol.ID_HEADER] = session.reserved
        return response

    async def _response(
        self, request: Request, session: Session, verb: str, work: Work
    ) -> Response:
        try:
            if session.refusal is not None:
                raise session.refusal
            if self.inside >= self.requests_max:
                raise BusyError(f"{self.requests_max} requests are running; try again later")
            body = await self._body(request)
        except Exception as error:  # noqa: BLE001 - it becomes the answer
            # The body was not read: nothing that follows on this connection could be told from it.
            return answers.refusal(answers.as_error(error), {"connection": "close"})
        self.inside += 1
        try:
            loop = asyncio.get_running_loop()
            kind = request.headers.get("content-type", "")
            return await loop.run_in_executor(
                self.executor, self._run, body, kind, request.headers, session, verb, work
            )
        finally:
            self.inside -= 1

    async def _body(self, request: Request) -> bytes:
        if int(request.headers.get("content-length") or 0) > self.body_bytes_max:
            raise self._too_large()
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > self.body_bytes_max:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> RequestError:
        return RequestError(
            f"a request carries at most {self.body_bytes_max} bytes; send the rows in several calls"
            " of one transaction"
        )

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
            return self._answer(work(call), session)
        except Exception as error:  # noqa: BLE001 - it becomes the answer
            return answers.refusal(answers.as_error(error), {})

    def _answer(self, outcome: Outcome, session: Session) -> Response:
        batches = rows_of(outcome.value)
        if batches is None:
            return answers.answer(outcome.value, {})
        return answers.Stream(
            batches,
            {},
            executor=self.executor,
            is_over=lambda: self.is_closing or session.is_closed,
            lock=outcome.lock,
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
    calls = desk.calls

    @app.get("/v1/hello")
    async def hello(request: Request) -> Response:
        return await desk.serve(request, "hello", lambda _: Outcome(desk.hello()))

    @app.post("/v1/transaction/begin")
    async def begin(request: Request) -> Response:
        return await desk.serve(request, "transaction", calls.begin)

    @app.post("/v1/transaction/{key}/{verb}")
    async def of_transaction(request: Request, key: str, verb: str) -> Response:
        return await desk.serve(request, verb, lambda call: calls.of_transaction(key, call))

    @app.post("/v1/snapshot/open")
    async def open_snapshot(request: Request) -> Response:
        return await desk.serve(request, "snapshot", calls.open)

    @app.post("/v1/snapshot/{key}/{verb}")
    async def of_snapshot(request: Request, key: str, verb: str) -> Response:
        return await desk.serve(request, verb, lambda call: calls.of_snapshot(key, call))

    @app.post("/v1/table/{table}/{verb}")
    async def of_table(request: Request, table: str, verb: str) -> Response:
        return await desk.serve(request, verb, lambda call: calls.of_table(table, call))

    @app.post("/v1/{verb}")
    async def of_store(request: Request, verb: str) -> Response:
        return await desk.serve(request, verb, calls.of_store)

    _ = (hello, begin, of_transaction, open_snapshot, of_snapshot, of_table, of_store)
    return app


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
