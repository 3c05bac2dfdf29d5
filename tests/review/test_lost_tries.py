"""A try that lost leaves nothing, whatever its handler makes of the refusal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import siltstone as st
from siltstone import web
from siltstone.engine.commit.core import Core
from siltstone.web.messages import KeptBody
from tests.web.conftest import made
from tests.web.serving import served
from tests.web.shop import add_one, count


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with made(tmp_path / "shop") as db:
        yield db


def answer_of(handler: Any) -> httpx.Response:
    route = Route("/", handler, methods=["POST"], middleware=[Middleware(web.Retries)])
    with served(Starlette(routes=[route])) as url:
        return httpx.post(url)


def test_a_background_task_of_an_answer_that_is_dropped_is_not_begun(db: st.Store) -> None:
    tries, ran = list[int](), list[int]()

    async def handler(request: Request) -> Response:
        number = len(tries)
        tries.append(number)
        try:
            async with web.begin(request, db) as tx:
                add_one(tx)
                if number == 0:
                    db["stock"].update("lamp", n=100)
            text = "done"
        except HTTPException:
            text = "lost"
        return PlainTextResponse(text, background=BackgroundTask(ran.append, number))

    assert answer_of(handler).text == "done"
    assert (tries, ran) == ([0, 1], [1])


def test_a_handler_that_committed_by_itself_is_not_repeated(db: st.Store) -> None:
    tries = list[int]()

    async def handler(request: Request) -> Response:
        tries.append(len(tries))
        async with web.begin(request, db) as tx:
            add_one(tx)
            tx.commit()
            async with web.begin(request, db) as lost:
                add_one(lost)
                db["orders"].insert({"id": len(tries), "item": "lamp"})
                db["stock"].update("lamp", n=10)
        return PlainTextResponse("done")

    assert answer_of(handler).status_code == 500
    assert (tries, count(db)) == ([0], 10)


def test_a_body_in_small_pieces_is_kept_in_its_own_size() -> None:
    pieces = 10_000

    async def main() -> int:
        sent = iter([{"type": "http.request", "body": b"", "more_body": True}] * pieces)

        async def receive() -> Any:
            return next(sent, {"type": "http.request", "body": b"x", "more_body": False})

        body = KeptBody(receive, 1)
        for _ in range(2):
            read, whole = body.again(), b""
            while True:
                message = await read()
                whole += message.get("body", b"")
                if not message.get("more_body", False):
                    break
            assert whole == b"x"
        assert body.is_kept
        return sum(sys.getsizeof(each) for each in vars(body).values())

    assert asyncio.run(main()) < pieces


def test_a_request_that_is_not_shipped_is_not_acknowledged_as_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a worker the owner is asked of a commit in doubt: it is committed, and not shipped."""

    def wait_shipped(_core: Core, seq: int, receipt: Any = None, _timeout_s: Any = None) -> int:
        raise st.NotShippedError(seq, "the bucket is gone", receipt)

    monkeypatch.setattr(Core, "ships", lambda _: None)
    monkeypatch.setattr(Core, "wait_shipped", wait_shipped)
    made(tmp_path / "shop").close()
    shop = web.WorkerStore(tmp_path / "shop", background=False)

    async def handler(request: Request) -> Response:
        async with web.begin(request, shop, durability="shipped") as tx:
            add_one(tx)
        return PlainTextResponse("shipped")

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with shop:
            yield

    route = Route("/", handler, methods=["POST"], middleware=[Middleware(web.Retries)])
    with served(Starlette(routes=[route], lifespan=lifespan)) as url:
        assert httpx.post(url).status_code == 500
    with st.connect(tmp_path / "shop", background=False) as db:
        assert count(db) == 1
