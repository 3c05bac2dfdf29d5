"""Workers of one application share a store; if one is killed, nothing acknowledged is lost."""

import asyncio
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

import siltstone as st
from siltstone import web
from siltstone.web.retry_route import RetryRoute
from tests.nightly import by_day
from tests.server.owners import Owner, owner_of
from tests.web.serving import posted, served

EXAMPLE = Path(__file__).parents[2] / "examples" / "web"
WORKERS = 4
REQUESTS = by_day(200, 2_000)


@contextmanager
def workers(
    store: Path, log: Path, count: int = WORKERS
) -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    """Yield the URL of the example in so many workers, and their parent."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    listener.set_inheritable(True)
    uvicorn = [sys.executable, "-m", "uvicorn", "shop:app", f"--workers={count}"]
    port = listener.getsockname()[1]
    with log.open("wb") as output:
        running = subprocess.Popen(
            [*uvicorn, f"--fd={listener.fileno()}", "--timeout-graceful-shutdown=20"],
            cwd=EXAMPLE,
            env={**os.environ, "SHOP": str(store)},
            pass_fds=[listener.fileno()],
            stdout=output,
            stderr=output,
        )
        listener.close()  # it is theirs: what they do not accept any more is refused
        try:
            yield f"http://127.0.0.1:{port}", running
        finally:
            running.terminate()
            running.wait()


async def _order(client: httpx.AsyncClient, number: int, acknowledged: set[int]) -> None:
    try:
        answer = await client.post("/orders", json={"id": number, "item": "lamp"})
    except httpx.TransportError:  # its worker was killed
        return
    if answer.status_code == 200:
        acknowledged.add(number)


async def _ordered_beside_a_kill(url: str, owner: int) -> set[int]:
    """Send orders, and kill a worker meanwhile; return those acknowledged, some of them later."""
    acknowledged: set[int] = set()
    numbers = itertools.count()
    async with httpx.AsyncClient(base_url=url, timeout=240) as client:

        async def one_client() -> None:
            for number in numbers:
                if number >= REQUESTS:
                    return
                await _order(client, number, acknowledged)
                if number == REQUESTS // 10:
                    os.kill(owner, signal.SIGKILL)

        await asyncio.gather(*(one_client() for _ in range(8)))
        later = itertools.count(REQUESTS)
        while not any(number >= REQUESTS for number in acknowledged):
            await _order(client, next(later), acknowledged)
    return acknowledged


def _owner(store: Path) -> int:
    return json.loads((store / "LOCK").read_text())["pid"]


def test_of_workers_one_is_killed_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    store, log = tmp_path / "shop", tmp_path / "log"
    with workers(store, log) as (url, running):
        assert posted(url, 1, json={"id": -1, "item": "lamp"})[0].status_code == 200, (
            log.read_text()
        )
        acknowledged = asyncio.run(_ordered_beside_a_kill(url, _owner(store)))
        running.terminate()
        assert running.wait() in {0, -signal.SIGTERM}
    with st.connect(store) as db:
        rows = set(db["orders"].to_arrow()["id"].to_pylist()) - {-1}
        sold = db["sold"].get("lamp")
    text = log.read_text()
    assert acknowledged <= rows, text
    # Of those that had no answer some are in; each that is in was counted once.
    assert sold == {"item": "lamp", "n": len(rows) + 1}


def test_an_application_that_is_stopped_beside_a_hundred_requests_loses_none_acknowledged(
    tmp_path: Path,
) -> None:
    store, log = tmp_path / "shop", tmp_path / "log"
    acknowledged: set[int] = set()

    async def ordered(url: str, stop: Callable[[], None]) -> None:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(base_url=url, timeout=240, limits=limits) as client:
            await _order(client, 0, acknowledged)

            async def one(number: int) -> None:
                await _order(client, number, acknowledged)
                if len(acknowledged) == 10:
                    stop()

            await asyncio.gather(*(one(number) for number in range(1, 101)))

    with workers(store, log, count=1) as (url, running):
        asyncio.run(ordered(url, running.terminate))
        assert running.wait() in {0, -signal.SIGTERM}, log.read_text()
    with st.connect(store, read_only=True) as db:
        rows = set(db["orders"].to_arrow()["id"].to_pylist())
        assert db["sold"].get("lamp") == {"item": "lamp", "n": len(rows)}
    assert acknowledged <= rows
    assert len(acknowledged) >= 10, log.read_text()


def _app(worker: web.WorkerStore, route: type[APIRoute]) -> FastAPI:
    """Return the application of a worker, which counts in the table of `owner_of`."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with worker:
            yield

    app, router = FastAPI(lifespan=lifespan), APIRouter(route_class=route)

    @router.post("/orders")
    def add(tx: Annotated[st.Transaction, web.transaction(worker)]) -> int:
        row = tx["t"].get(1)
        assert row is not None
        tx["t"].update(1, v=row["v"] + 1)
        return row["v"] + 1

    app.include_router(router)
    return app


def _patient(store: Path) -> web.WorkerStore:
    """Return a worker's store that waits for the next owner on a slow machine, too."""
    return web.WorkerStore(store, join_timeout_s=120.0)


@pytest.mark.parametrize(("route", "first"), [(RetryRoute, 200), (APIRoute, 503)])
def test_a_worker_whose_owner_was_killed_becomes_the_next_owner(
    tmp_path: Path, route: type[APIRoute], first: int
) -> None:
    """The request that hears of it runs again, or is answered with 503."""
    store = tmp_path / "shop"
    with owner_of(store) as owner, served(_app(_patient(store), route)) as url:
        assert httpx.post(f"{url}/orders").json() == 11
        owner.kill()
        assert httpx.post(f"{url}/orders", timeout=120).status_code == first
        answers = posted(url, 20) if route is RetryRoute else [httpx.post(f"{url}/orders")]
        assert {answer.status_code for answer in answers} == {200}
        assert _owner(store) == os.getpid()
        done = 1 + (first == 200) + len(answers)
        assert httpx.post(f"{url}/orders").json() == 10 + done + 1


def test_an_owner_that_is_stopped_hangs_no_request_of_a_worker(tmp_path: Path) -> None:
    """It owns the store still, so nobody knows what became of a commit that it was sent."""
    store = tmp_path / "shop"
    worker = web.WorkerStore(store, answer_timeout_s=1.0, join_timeout_s=1.0)
    with owner_of(store) as owner, served(_app(worker, RetryRoute)) as url:
        assert httpx.post(f"{url}/orders", timeout=120).json() == 11
        os.kill(owner.process.pid, signal.SIGSTOP)
        try:
            stopped = posted(url, 3)
        finally:
            os.kill(owner.process.pid, signal.SIGCONT)
        assert {answer.status_code for answer in stopped} <= {500, 503}
        assert all("transaction" in each.text for each in stopped if each.status_code == 500)
        answer = _acknowledged(url)
        assert 12 <= answer.json() <= 12 + len(stopped)


def _acknowledged(url: str) -> httpx.Response:
    """Ask until an owner answers again, which it does by itself."""
    while True:
        answer = httpx.post(f"{url}/orders", timeout=120)
        if answer.status_code == 200:
            return answer
        assert answer.status_code in {500, 503}


def test_what_is_in_doubt_because_its_owner_was_killed_is_asked_of_the_next_one(
    tmp_path: Path,
) -> None:
    """Ten clients go on while owners are killed; each 200 is one more in the row, and no more."""
    store = tmp_path / "shop"
    with owner_of(store) as owner, served(_app(_patient(store), RetryRoute)) as url:
        killing = threading.Thread(target=_kill_soon, args=(store, owner))
        killing.start()
        answers = posted(url, 100)
        killing.join()
        done = sum(answer.status_code == 200 for answer in answers)
        assert {answer.status_code for answer in answers} <= {200, 503}
        assert httpx.post(f"{url}/orders", timeout=120).json() == 10 + done + 1


def _kill_soon(store: Path, owner: Owner) -> None:
    """Kill the owner once it has committed something of the application's."""
    with st.connect(store, read_only=True) as reader:
        while reader["t"].get(1) == {"id": 1, "v": 10}:
            pass
    owner.kill()


@pytest.mark.parametrize("error", [st.UnavailableError("no DuckDB"), st.ClosedError("ended")])
def test_a_handler_that_fails_beside_a_living_owner_is_not_repeated(
    tmp_path: Path, error: st.SiltstoneError
) -> None:
    store, calls = tmp_path / "shop", list[int]()
    worker = _patient(store)
    app = _app(worker, RetryRoute)
    app.router.route_class = RetryRoute

    @app.post("/fails")
    def fail(tx: Annotated[st.Transaction, web.transaction(worker)]) -> None:
        calls.append(1)
        raise error

    with owner_of(store), served(app) as url:
        assert httpx.post(f"{url}/orders").json() == 11
        before = worker()
        assert httpx.post(f"{url}/fails").status_code == 503
        assert worker() is before
        assert httpx.post(f"{url}/orders").json() == 12
    assert calls == [1]


def test_before_its_begin_and_after_its_end_a_worker_answers_503(tmp_path: Path) -> None:
    worker = web.WorkerStore(tmp_path / "shop")
    app = FastAPI()

    @app.post("/orders")
    def add(tx: Annotated[st.Transaction, web.transaction(worker)]) -> None:
        raise AssertionError

    with served(app) as url:
        answer = httpx.post(f"{url}/orders")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
