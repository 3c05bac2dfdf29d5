"""A transaction of a request is committed before the answer is sent, or not at all.

Each application here is served by uvicorn.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Annotated, Any

import anyio
import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse

import siltstone as st
from siltstone import web
from siltstone.local.transaction import LocalTransaction
from siltstone.web.threads import called, ended, waited
from tests.web.serving import served
from tests.web.shop import add_one, app_of, count


def test_the_answer_is_sent_after_the_commit(db: st.Store, is_async: bool) -> None:
    with served(app_of(db, add_one, is_async=is_async)) as url:
        answer = httpx.post(f"{url}/orders")
    assert (answer.status_code, answer.json()) == (200, 1)
    assert count(db) == 1


def test_a_commit_that_loses_is_answered_with_409(db: st.Store, is_async: bool) -> None:
    def work(tx: st.Transaction) -> int:
        db["stock"].update("lamp", n=100)
        return add_one(tx)

    with served(app_of(db, work, is_async=is_async)) as url:
        answer = httpx.post(f"{url}/orders")
    assert answer.status_code == 409
    assert "stock[lamp] was written at seq" in answer.json()["detail"]
    assert count(db) == 100


ERRORS = [
    (st.DuplicateKeyError("orders", 1), 409),
    (st.TableNotFoundError("gone"), 404),
    (st.SchemaMismatchError("column 'id' is int64, not str 'a'"), 422),
    (st.RequestError("no"), 400),
    (st.ConflictError("orders", 1, 2, 3), 409),
    (st.BusyError("memtables are full"), 503),
    (st.UnavailableError("no space"), 503),
    (st.ClosedError("the store is closed"), 503),
    (st.InDoubtError("3-17"), 500),
    (st.InvariantError("a bug"), 500),
    (st.CorruptionError("x.wal", 12, "a bad frame"), 500),
    (HTTPException(402, "no money"), 402),
    (ValueError("a bug of the app"), 500),
]


@pytest.mark.parametrize(
    ("error", "status"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS]
)
def test_an_error_of_the_handler_rolls_back_and_has_a_status_by_its_kind(
    db: st.Store, error: Exception, status: int
) -> None:
    def work(tx: st.Transaction) -> None:
        add_one(tx)
        raise error

    with served(app_of(db, work)) as url:
        answer = httpx.post(f"{url}/orders")
    assert answer.status_code == status
    assert ("retry-after" in answer.headers) == (status == 503)
    assert count(db) == 0
    assert db.status().open_transactions == 0


def test_a_key_that_exists_is_answered_with_409(db: st.Store) -> None:
    def work(tx: st.Transaction) -> None:
        tx["orders"].insert({"id": 1, "item": "lamp"})

    with served(app_of(db, work)) as url:
        assert [httpx.post(f"{url}/orders").status_code for _ in range(2)] == [200, 409]
    assert db["orders"].count() == 1


def test_a_503_does_not_tell_where_the_store_is(db: st.Store) -> None:
    def work(tx: st.Transaction) -> None:
        raise st.OwnedError(db.path, 4711, "atlas")

    with served(app_of(db, work)) as url:
        answer = httpx.post(f"{url}/orders")
    assert answer.status_code == 503
    assert str(db.path) not in answer.text


def test_a_single_statement_is_answered_by_its_kind_with_the_handler_of_errors(
    db: st.Store,
) -> None:
    app = FastAPI(exception_handlers={st.SiltstoneError: web.answer})

    @app.post("/orders")
    def add() -> None:
        db["orders"].insert({"id": 1, "item": "lamp"})

    @app.get("/bug")
    def fail() -> None:
        raise st.InvariantError("a bug")

    with served(app) as url:
        answers = [httpx.post(f"{url}/orders") for _ in range(2)]
        assert httpx.get(f"{url}/bug").status_code == 500
    assert [answer.status_code for answer in answers] == [200, 409]
    assert "exists already" in answers[1].json()["detail"]


def test_a_background_task_begins_after_the_commit(db: st.Store) -> None:
    app, seen = FastAPI(), list[int]()
    is_done = threading.Event()

    def look() -> None:
        seen.append(count(db))
        is_done.set()

    @app.post("/orders")
    def add(
        tx: Annotated[st.Transaction, web.transaction(db)], background: BackgroundTasks
    ) -> None:
        background.add_task(look)
        add_one(tx)

    with served(app) as url:
        httpx.post(f"{url}/orders")
        assert is_done.wait(60)
    assert seen == [1]


def test_a_commit_that_loses_begins_no_background_task(db: st.Store) -> None:
    app, seen = FastAPI(), list[int]()

    @app.post("/orders")
    def add(
        tx: Annotated[st.Transaction, web.transaction(db)], background: BackgroundTasks
    ) -> None:
        background.add_task(lambda: seen.append(1))
        db["stock"].update("lamp", n=100)
        add_one(tx)

    with served(app) as url:
        assert httpx.post(f"{url}/orders").status_code == 409
    assert seen == []


def test_all_dependencies_of_a_request_have_one_transaction(db: st.Store) -> None:
    app, given = FastAPI(), web.transaction(db)

    def counted(tx: Annotated[st.Transaction, given]) -> int:
        return add_one(tx)

    @app.post("/orders")
    def add(tx: Annotated[st.Transaction, given], n: Annotated[int, Depends(counted)]) -> list[int]:
        return [n, add_one(tx)]

    with served(app) as url:
        assert httpx.post(f"{url}/orders").json() == [1, 2]
    assert count(db) == 2


def test_an_error_after_the_yield_of_a_dependency_above_it_rolls_back(db: st.Store) -> None:
    app, given = FastAPI(), web.transaction(db)

    def checked(tx: Annotated[st.Transaction, given]) -> Generator[st.Transaction]:
        yield tx
        raise HTTPException(418, "checked, and refused")

    @app.post("/orders")
    def add(tx: Annotated[st.Transaction, Depends(checked, scope="function")]) -> int:
        return add_one(tx)

    with served(app) as url:
        assert httpx.post(f"{url}/orders").status_code == 418
    assert count(db) == 0


def test_an_answer_that_does_not_fit_its_model_rolls_back(db: st.Store) -> None:
    app = FastAPI()

    @app.post("/orders", response_model=int)
    def add(tx: Annotated[st.Transaction, web.transaction(db)]) -> Any:
        add_one(tx)
        return "no number"

    with served(app) as url:
        assert httpx.post(f"{url}/orders").status_code == 500
    assert count(db) == 0


def test_a_stream_of_rows_begins_after_the_commit_and_reads_a_snapshot(db: st.Store) -> None:
    app = FastAPI()

    @app.post("/orders")
    def add(tx: Annotated[st.Transaction, web.transaction(db)]) -> StreamingResponse:
        add_one(tx)
        return StreamingResponse(str(count(db)) for _ in range(2))

    @app.get("/rows")
    def rows(past: Annotated[st.Snapshot, web.snapshot(db)]) -> Iterator[dict[str, Any]]:
        for batch in past["stock"].scan():
            db["stock"].update("lamp", n=7)
            yield from batch.to_pylist()

    with served(app) as url:
        assert httpx.post(f"{url}/orders").text == "11"
        assert httpx.get(f"{url}/rows").json() == {"item": "lamp", "n": 1}
    assert count(db) == 7
    assert db.status().leases == 1  # the snapshot is closed


def test_a_snapshot_that_is_not_kept_is_answered_with_410(db: st.Store) -> None:
    app = FastAPI()

    @app.get("/rows")
    def rows(past: Annotated[st.Snapshot, web.snapshot(db, seq=1_000)]) -> int:
        return past.seq

    with served(app) as url:
        assert httpx.get(f"{url}/rows").status_code == 410


def test_transactions_of_two_stores_are_committed_one_by_one(db: st.Store, other: st.Store) -> None:
    app = FastAPI()

    @app.post("/orders")
    def add(
        here: Annotated[st.Transaction, web.transaction(db)],
        there: Annotated[st.Transaction, web.transaction(other)],
        loses: str = "",
    ) -> None:
        add_one(here)
        add_one(there)
        if loses:
            {"here": db, "there": other}[loses]["stock"].update("lamp", n=100)

    with served(app) as url:
        assert httpx.post(f"{url}/orders").status_code == 200
        assert (count(db), count(other)) == (1, 1)
        # The last one commits first: it loses alone, and takes the other one with it.
        assert httpx.post(f"{url}/orders?loses=there").status_code == 409
        assert (count(db), count(other)) == (1, 100)
        # The first one loses when the other one is committed: no definite failure.
        answer = httpx.post(f"{url}/orders?loses=here")
        assert (answer.status_code, "one store is committed" in answer.text) == (500, True)
        assert (count(db), count(other)) == (100, 101)


def _telling(app: FastAPI, is_over: threading.Event) -> Any:
    """Return the application that says when a request is over, whether its client hears it."""

    async def around(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        finally:
            if scope["type"] == "http":
                is_over.set()

    return around


def test_a_client_that_goes_away_within_the_body_changes_nothing(db: st.Store) -> None:
    app, is_over = FastAPI(), threading.Event()

    @app.post("/orders")
    def add(order: dict[str, int], tx: Annotated[st.Transaction, web.transaction(db)]) -> None:
        add_one(tx)

    with served(_telling(app, is_over)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as half:
            half.sendall(b"POST /orders HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert is_over.wait(60)
    assert count(db) == 0
    assert db.status().open_transactions == 0


def test_a_client_that_goes_away_while_the_handler_works_has_committed(db: st.Store) -> None:
    begun, gone, is_over = threading.Event(), threading.Event(), threading.Event()

    def work(tx: st.Transaction) -> None:
        begun.set()
        assert gone.wait(60)
        add_one(tx)

    with served(_telling(app_of(db, work), is_over)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST /orders HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
            assert begun.wait(60)
        gone.set()
        assert is_over.wait(60)
    assert count(db) == 1
    assert db.status().open_transactions == 0


def test_a_test_gives_the_application_a_store_in_memory(db: st.Store) -> None:
    def shop() -> st.Store:
        return db

    app = FastAPI()

    @app.post("/orders")
    def add(tx: Annotated[st.Transaction, web.transaction(shop)]) -> int:
        return add_one(tx)

    with st.connect(":memory:") as memory:
        memory.create_table(
            "stock", {"item": "string", "n": "int64"}, "item", data={"item": "lamp", "n": 5}
        )
        app.dependency_overrides[shop] = lambda: memory
        with served(app) as url:
            assert httpx.post(f"{url}/orders").json() == 6
    assert count(db) == 0


async def _cancelled(app: Any, within: threading.Event, go_on: threading.Event) -> None:
    """Cancel a request once its thread is within, which goes on then; wait for its end."""
    asking = asyncio.create_task(_asked(app))
    await asyncio.to_thread(within.wait)
    asking.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def _asked(app: FastAPI) -> None:
    """Send an application one request, as a server does that does not read the answer."""
    scope = {"type": "http", "method": "POST", "path": "/orders", "query_string": b""}
    scope |= {"headers": [], "http_version": "1.1", "scheme": "http", "root_path": ""}

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: object) -> None:
        return

    await app(scope, receive, send)


def test_a_request_that_is_cancelled_before_its_commit_changes_nothing(db: st.Store) -> None:
    app = FastAPI()

    async def main() -> None:
        is_within = asyncio.Event()

        @app.post("/orders")
        async def add(tx: Annotated[st.Transaction, web.transaction(db)]) -> None:
            add_one(tx)
            is_within.set()
            await asyncio.Event().wait()

        asking = asyncio.create_task(_asked(app))
        await is_within.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(main())
    assert count(db) == 0
    assert db.status().open_transactions == 0


def test_a_request_that_is_cancelled_within_its_commit_waits_for_its_end(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the transaction would be rolled back by one thread while another one commits it."""
    within, go_on = threading.Event(), threading.Event()
    commit = LocalTransaction.commit

    def slow(tx: LocalTransaction) -> Any:
        within.set()
        assert go_on.wait(60)
        return commit(tx)

    async def main() -> None:
        asking = asyncio.create_task(_asked(app_of(db, add_one)))
        await asyncio.to_thread(within.wait)
        asking.cancel()
        for _ in range(10):  # it is told, and would end
            await asyncio.sleep(0)
        assert not asking.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asking

    monkeypatch.setattr(LocalTransaction, "commit", slow)
    asyncio.run(main())
    assert count(db) == 1
    assert db.status().open_transactions == 0


def test_a_request_that_is_cancelled_while_its_transaction_begins_leaves_none_open(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    within, go_on = threading.Event(), threading.Event()
    begin = type(db).transaction

    def slow(self: st.Store, **options: Any) -> Any:
        within.set()
        assert go_on.wait(60)
        return begin(self, **options)

    async def main() -> None:
        await _cancelled(app_of(db, add_one), within, go_on)
        assert db.status().open_transactions == 0

    monkeypatch.setattr(type(db), "transaction", slow)
    asyncio.run(main())
    assert count(db) == 0


def test_a_loop_that_ends_while_a_request_commits_waits_for_the_commit(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    within, go_on = threading.Event(), threading.Event()
    counts: list[int] = []
    commit = LocalTransaction.commit

    def slow(tx: LocalTransaction) -> Any:
        within.set()
        assert go_on.wait(60)
        return commit(tx)

    async def ask() -> None:
        try:
            await _asked(app_of(db, add_one))
        finally:
            counts.append(count(db))

    async def main() -> None:
        asking = asyncio.create_task(ask())
        await asyncio.to_thread(within.wait)
        assert not asking.done()
        asyncio.get_running_loop().call_soon(_later, 20, go_on.set)

    monkeypatch.setattr(LocalTransaction, "commit", slow)
    asyncio.run(main())
    assert counts == [1]
    assert db.status().open_transactions == 0


def _later(steps: int, call: Callable[[], object]) -> None:
    """Call something after some steps of the loop."""
    loop = asyncio.get_running_loop()
    if steps:
        loop.call_soon(_later, steps - 1, call)
    else:
        call()


@pytest.mark.parametrize("steps", range(6))
def test_a_loop_that_ends_rolls_back_what_a_request_has_open(steps: int) -> None:
    done: list[bool] = []

    async def main() -> None:
        ending = asyncio.create_task(ended(lambda: done.append(True)))
        for _ in range(1 + steps):
            await asyncio.sleep(0)
        assert not ending.cancelled()

    asyncio.run(main())
    assert done


def test_a_request_that_its_server_cancels_waits_without_work() -> None:
    """AnyIO cancels again at each step of the loop what is not shielded."""
    within, go_on = threading.Event(), threading.Event()
    waits: list[None] = []

    def work() -> None:
        within.set()
        assert go_on.wait(60)

    async def main() -> None:
        wait = asyncio.wait

        async def counted(*given: Any, **named: Any) -> Any:
            waits.append(None)
            return await wait(*given, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "wait", counted)
            async with anyio.create_task_group() as group:
                group.start_soon(called, work)
                await asyncio.to_thread(within.wait)
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    for _ in range(50):
                        await asyncio.sleep(0)
                    go_on.set()

    asyncio.run(main())
    assert len(waits) == 1


@pytest.mark.parametrize("call", [called, waited, ended])
def test_who_is_cancelled_waits_for_the_end_of_a_call(call: Any) -> None:
    """Else a turn that comes then is nobody's, who gives it back."""
    within, go_on = threading.Event(), threading.Event()
    done: list[bool] = []

    def work() -> None:
        within.set()
        assert go_on.wait(60)
        done.append(True)

    async def main() -> None:
        calling = asyncio.create_task(call(work))
        await asyncio.to_thread(within.wait)
        calling.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        is_early = calling.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert (is_early, done) == (False, [True])

    asyncio.run(main())


def test_a_request_that_is_cancelled_while_its_snapshot_opens_leaves_none_open(
    db: st.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    within, go_on = threading.Event(), threading.Event()
    made: list[st.Snapshot] = []
    snapshot = type(db).snapshot

    def slow(self: st.Store, **moment: Any) -> Any:
        within.set()
        assert go_on.wait(60)
        made.append(snapshot(self, **moment))
        return made[0]

    app = FastAPI()

    @app.post("/orders")
    def read(past: Annotated[st.Snapshot, web.snapshot(db)]) -> int:
        return past["orders"].count()

    async def main() -> None:
        await _cancelled(app, within, go_on)

    monkeypatch.setattr(type(db), "snapshot", slow)
    asyncio.run(main())
    with pytest.raises(st.ClosedError):
        made[0]["orders"].count()
