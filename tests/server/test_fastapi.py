"""A transaction as a dependency of FastAPI commits before the answer, with the right scope."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from fastapi import Depends, FastAPI

import siltstone as st

ROOT = Path(__file__).parents[2]
Scope = Literal["function", "request"]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "shop", background=False) as made:
        table = made.create_table("spent", {"customer": "int64", "n": "int64"}, "customer")
        table.insert({"customer": 7, "n": 0})
        yield made


def _app(db: st.Store, scope: Scope | None, *, loses: bool) -> FastAPI:
    """Return an app that adds 1 to a row; with `loses` another commit changes it meanwhile."""
    app = FastAPI()

    def transaction() -> Iterator[st.Transaction]:
        with db.transaction() as tx:
            yield tx

    @app.post("/orders")
    def add(tx: Annotated[st.Transaction, Depends(transaction, scope=scope)]) -> dict[str, bool]:
        row = tx["spent"].get(7)
        assert row is not None
        tx["spent"].update(7, n=row["n"] + 1)
        if loses:
            db["spent"].update(7, n=100)
        return {"ok": True}

    return app


async def _posted(app: FastAPI) -> int:
    """Post a request as a server does; return the status that the client is sent first."""
    sent: list[Any] = []
    scope = {"type": "http", "method": "POST", "path": "/orders", "query_string": b""}
    scope |= {"headers": [], "http_version": "1.1", "scheme": "http", "root_path": ""}

    body: dict[str, object] = {"type": "http.request", "body": b"", "more_body": False}
    messages = iter([body])

    async def receive() -> dict[str, object]:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: object) -> None:
        sent.append(message)

    with contextlib.suppress(st.ConflictError):  # a server logs it, whatever it sent before
        await asyncio.wait_for(app(scope, receive, send), 60)
    return sent[0]["status"]


def _status_of(app: FastAPI) -> int:
    return asyncio.run(_posted(app))


def test_two_hundred_requests_on_one_row_are_all_answered(db: st.Store) -> None:
    """FastAPI runs 40 of them at a time, in threads."""
    app = FastAPI()

    def add_one(tx: st.Transaction) -> None:
        row = tx["spent"].get(7)
        assert row is not None
        tx["spent"].update(7, n=row["n"] + 1)

    @app.post("/orders")
    def add() -> dict[str, bool]:
        db.run(add_one)
        return {"ok": True}

    async def all_at_once() -> list[int]:
        return await asyncio.gather(*(_posted(app) for _ in range(200)))

    assert asyncio.run(all_at_once()) == [200] * 200
    assert db["spent"].get(7) == {"customer": 7, "n": 200}


@pytest.mark.parametrize("scope", [None, "request", "function"])
def test_a_transaction_of_a_request_that_wins_is_committed(
    db: st.Store, scope: Scope | None
) -> None:
    assert _status_of(_app(db, scope, loses=False)) == 200
    assert db["spent"].get(7) == {"customer": 7, "n": 1}


@pytest.mark.parametrize("scope", [None, "request"])
def test_a_plain_dependency_answers_200_for_a_commit_that_is_refused_afterwards(
    db: st.Store, scope: Scope | None
) -> None:
    assert _status_of(_app(db, scope, loses=True)) == 200
    assert db["spent"].get(7) == {"customer": 7, "n": 100}


def test_a_dependency_with_the_scope_of_the_function_answers_500_for_it(db: st.Store) -> None:
    assert _status_of(_app(db, "function", loses=True)) == 500
    assert db["spent"].get(7) == {"customer": 7, "n": 100}


def test_the_code_of_the_guide_answers_after_the_commit(db: st.Store) -> None:
    """It is no block of Python there: the guide's own test needs no FastAPI."""
    text = (ROOT / "docs" / "guide.md").read_text().partition("### In FastAPI")[2]
    code = re.search(r"^```\n(.*?)^```\n", text, re.MULTILINE | re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {"db": db, "st": st}
    exec(code[1], names)
    assert _status_of(names["app"]) == 200
    assert db["spent"].get(7) == {"customer": 7, "n": 1}
    assert 'scope="function"' in code[1]
