"""A request whose server stops in the middle of it closes its rows when its thread has them."""

# pyright: reportArgumentType=false

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from siltstone.server.http.lane import Lane
from siltstone.server.http.pipeline import Pipeline
from siltstone.server.http.policy import LanePolicy, RequestPolicy
from siltstone.server.http.replies import Pieces, Reply
from siltstone.server.http.route import Role, Route

WAIT_S = 30
POLICY = RequestPolicy(
    body_bytes_max=9,
    json_bytes_max=9,
    bodies_bytes_max=9,
    body_timeout_s=WAIT_S,
    requests_max=1,
    statement_timeout_s=None,
)


class HeldWire:
    """Runs a request that waits until `go` is set, and then has rows; `closed`: they are closed."""

    def __init__(self) -> None:
        self.running, self.go, self.closed = threading.Event(), threading.Event(), threading.Event()

    def admit(self, *_: object) -> None:
        pass

    def client_of(self, _: object) -> None:
        pass

    def run(self, *_: object) -> Reply[Pieces]:
        self.running.set()
        assert self.go.wait(WAIT_S)
        return Reply(Pieces("text/plain", self.chunks(), self.closed.set))

    def chunks(self) -> Iterator[bytes]:
        yield b"a"
        yield b"b"


async def cancelled(pipeline: Pipeline, wire: HeldWire, route: Route) -> None:
    """Cancel a request while it runs, and only then let it find its rows."""
    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    messages.put_nowait({"type": "http.request", "body": b""})
    request = SimpleNamespace(length=0, is_chunked=False, receive=messages.get)
    loop = asyncio.get_running_loop()
    task = loop.create_task(pipeline.answer(route, request, None))
    assert await loop.run_in_executor(None, wire.running.wait, WAIT_S)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    wire.go.set()
    assert await loop.run_in_executor(None, wire.closed.wait, WAIT_S)


@pytest.mark.parametrize("is_statement", [True, False], ids=["in a lane", "beside it"])
def test_rows_that_come_after_their_request_was_cancelled_are_closed(is_statement: bool) -> None:
    wire = HeldWire()
    route = Route("POST", "sql", Role.READ, lambda _: None, is_statement=is_statement)
    with ThreadPoolExecutor(1) as executor:

        async def scenario() -> None:
            lane = Lane(LanePolicy())
            pipeline = Pipeline(wire, POLICY, executor, lane=lane)
            await cancelled(pipeline, wire, route)
            assert (lane.running, pipeline.counters.inside) == (0, 0)
            lane.executor.shutdown()

        asyncio.run(scenario())
