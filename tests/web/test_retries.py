"""After a conflict a handler runs again with the same request, a bounded number of times.

Each application here is served by uvicorn.
"""

import threading
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import siltstone as st
from siltstone import web
from siltstone.web.retry_route import RetryRoute
from tests.server.stores import joined_to
from tests.web.serving import posted, served
from tests.web.shop import add_one, app_of, count


class ThreeTimes(RetryRoute):
    attempts = 3
    body_bytes_max = 10


class Rival:
    """Another writer, who is first so many times."""

    def __init__(self, db: st.Store, times: int) -> None:
        self.db, self.times, self.calls = db, times, 0

    def work(self, tx: st.Transaction) -> int:
        self.calls += 1
        made = add_one(tx)
        if self.calls <= self.times:
            self.db["stock"].update("lamp", n=100)
        return made


def test_two_hundred_requests_on_one_row_are_all_answered(db: st.Store, is_async: bool) -> None:
    with served(app_of(db, add_one, is_async=is_async, route=RetryRoute)) as url:
        answers = posted(url, 200)
    assert [answer.status_code for answer in answers] == [200] * 200
    assert sorted(answer.json() for answer in answers) == [*range(1, 201)]
    assert count(db) == 200


def test_requests_on_one_row_of_a_joined_store_are_all_answered(db: st.Store) -> None:
    with (
        joined_to(db) as joined,
        served(app_of(joined, add_one, is_async=True, route=RetryRoute)) as url,
        served(app_of(db, add_one, is_async=False, route=RetryRoute)) as owners,
    ):
        found: list[httpx.Response] = []
        beside = threading.Thread(target=lambda: found.extend(posted(owners, 50)))
        beside.start()
        answers = posted(url, 50)
        beside.join()
    assert [answer.status_code for answer in answers + found] == [200] * 100
    assert count(db) == 100


def test_a_handler_runs_again_until_it_wins(db: st.Store, is_async: bool) -> None:
    rival = Rival(db, times=2)
    with served(app_of(db, rival.work, is_async=is_async, route=ThreeTimes)) as url:
        answer = httpx.post(f"{url}/orders")
    assert (answer.status_code, answer.json()) == (200, 101)
    assert rival.calls == 3


def test_after_the_last_attempt_the_client_gets_409(db: st.Store, is_async: bool) -> None:
    rival = Rival(db, times=100)
    with served(app_of(db, rival.work, is_async=is_async, route=ThreeTimes)) as url:
        answer = httpx.post(f"{url}/orders")
    assert answer.status_code == 409
    assert "tried 3 times" in answer.json()["detail"]
    assert rival.calls == 3


def test_each_try_reads_the_body_from_its_beginning(db: st.Store) -> None:
    app, rival = FastAPI(), Rival(db, times=1)
    router = APIRouter(route_class=RetryRoute)
    seen: list[dict[str, int]] = []

    @router.post("/orders")
    def add(order: dict[str, int], tx: Annotated[st.Transaction, web.transaction(db)]) -> int:
        seen.append(order)
        return rival.work(tx)

    app.include_router(router)
    with served(app) as url:
        answer = httpx.post(
            f"{url}/orders",
            content=iter([b'{"a": ', b"1}"]),
            headers={"content-type": "application/json"},
        )
    assert (answer.json(), seen) == (101, [{"a": 1}] * 2)


def test_a_request_with_a_larger_body_than_is_kept_is_not_repeated(db: st.Store) -> None:
    app, rival = FastAPI(), Rival(db, times=1)
    app.router.route_class = ThreeTimes

    @app.post("/orders")
    async def add(request: Request, tx: Annotated[st.Transaction, web.transaction(db)]) -> int:
        assert len(await request.body()) == 11
        return rival.work(tx)

    with served(app) as url:
        assert httpx.post(f"{url}/orders", content=b"x" * 11).status_code == 409
    assert rival.calls == 1


def test_the_background_tasks_of_a_try_that_lost_are_dropped(db: st.Store) -> None:
    app, rival, ran = FastAPI(), Rival(db, times=2), list[int]()
    app.router.route_class = RetryRoute
    is_done = threading.Event()

    def note(call: int) -> None:
        ran.append(call)
        is_done.set()

    @app.post("/orders")
    def add(
        tx: Annotated[st.Transaction, web.transaction(db)], background: BackgroundTasks
    ) -> None:
        rival.work(tx)
        background.add_task(note, rival.calls)

    with served(app) as url:
        httpx.post(f"{url}/orders")
        assert is_done.wait(60)
    assert ran == [3]


def test_what_dependencies_read_is_read_again(db: st.Store) -> None:
    app, given, rival = FastAPI(), web.transaction(db), Rival(db, times=1)
    app.router.route_class = RetryRoute

    def counted(tx: Annotated[st.Transaction, given]) -> int:
        row = tx["stock"].get("lamp")
        assert row is not None
        return row["n"]

    @app.post("/orders")
    def add(tx: Annotated[st.Transaction, given], n: Annotated[int, Depends(counted)]) -> int:
        rival.work(tx)
        return n

    with served(app) as url:
        assert httpx.post(f"{url}/orders").json() == 100


def test_a_try_that_lost_leaves_nothing_in_the_requests_state(db: st.Store) -> None:
    app, rival = FastAPI(), Rival(db, times=1)
    app.router.route_class = RetryRoute

    @app.post("/orders")
    def add(request: Request, tx: Annotated[st.Transaction, web.transaction(db)]) -> bool:
        was_there = hasattr(request.state, "seen")
        request.state.seen = True
        rival.work(tx)
        return was_there

    with served(app) as url:
        assert httpx.post(f"{url}/orders").json() is False
    assert rival.calls == 2


def test_the_applications_own_answer_to_a_conflict_waits_for_the_last_attempt(
    db: st.Store,
) -> None:
    rival = Rival(db, times=100)
    app = app_of(db, rival.work, route=ThreeTimes)

    @app.exception_handler(HTTPException)
    async def told(request: Request, error: Any) -> Response:
        return JSONResponse({"sorry": error.status_code}, error.status_code)

    with served(app) as url:
        answer = httpx.post(f"{url}/orders")
    assert (answer.status_code, answer.json()) == (409, {"sorry": 409})
    assert rival.calls == 3


def test_a_request_that_committed_in_another_store_is_not_repeated(
    db: st.Store, other: st.Store
) -> None:
    app, rival = FastAPI(), Rival(db, times=1)
    app.router.route_class = RetryRoute

    @app.post("/orders")
    def add(
        here: Annotated[st.Transaction, web.transaction(db)],
        there: Annotated[st.Transaction, web.transaction(other)],
    ) -> None:
        add_one(there)
        rival.work(here)

    with served(app) as url:
        assert httpx.post(f"{url}/orders").status_code == 500
    assert (rival.calls, count(db), count(other)) == (1, 100, 1)


def test_a_request_that_is_wrong_is_not_repeated(db: st.Store) -> None:
    calls: list[int] = []
    app = app_of(db, lambda tx: calls.append(1) or tx["gone"], route=RetryRoute)
    with served(app) as url:
        assert httpx.post(f"{url}/orders").status_code == 404
        assert httpx.get(f"{url}/orders").status_code == 405
    assert calls == [1]


@pytest.mark.parametrize("number", [0, -1, True, "many"])
def test_bounds_of_retries_are_checked(number: Any) -> None:
    with pytest.raises(st.RequestError):
        web.Retries(Starlette(), attempts=number)


def test_handlers_of_starlette_have_transactions_and_run_again(
    db: st.Store, is_async: bool
) -> None:
    rival = Rival(db, times=1)

    async def on_the_loop(request: Request) -> Response:
        async with web.begin(request, db) as tx:
            return PlainTextResponse(str(rival.work(tx)))

    def in_a_thread(request: Request) -> Response:
        with web.begin(request, db) as tx:
            return PlainTextResponse(str(rival.work(tx)))

    handler = on_the_loop if is_async else in_a_thread
    once = Route("/once", handler, methods=["POST"])
    again = Route("/again", handler, methods=["POST"], middleware=[Middleware(web.Retries)])
    with served(Starlette(routes=[once, again])) as url:
        assert httpx.post(f"{url}/again").text == "101"
        rival.calls = 0
        assert httpx.post(f"{url}/once").status_code == 409
    assert count(db) == 100


def test_retries_around_a_whole_application_repeat_its_routes(db: st.Store) -> None:
    rival = Rival(db, times=1)
    app = app_of(db, rival.work, route=ThreeTimes)  # the outer one repeats
    app.add_middleware(web.Retries)
    with served(app) as url:
        assert httpx.post(f"{url}/orders").json() == 101
    assert rival.calls == 2


def test_a_first_try_waits_where_its_table_is_closed_for_one_that_keeps_losing(
    db: st.Store,
) -> None:
    """Also if its handler makes another error of it."""
    closed = threading.Event()

    def work(tx: st.Transaction) -> int:
        try:
            return add_one(tx)
        except Exception as error:
            closed.set()
            raise RequestValidationError([]) from error

    turn = db._turns.take("stock")
    for _ in range(3):
        assert db._turns.note_loss(turn)
    assert db._turns.closed == {"stock"}
    with served(app_of(db, work, route=RetryRoute)) as url:
        found: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: found.append(httpx.post(f"{url}/orders")))
        asking.start()
        assert closed.wait(60)
        db._turns.give_up(turn)
        asking.join()
    assert [answer.status_code for answer in found] == [200]
    assert count(db) == 1
