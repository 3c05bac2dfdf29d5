"""Dependencies: a transaction, or a snapshot, as a parameter of FastAPI's handlers.

    transaction   ends when the handler has returned: FastAPI's scope "function"
    snapshot      ends when the answer is sent: FastAPI's scope "request"

A dependency that FastAPI ends after the answer cannot commit: the client would have its 200 before
the commit is refused. So the scope is a part of what these functions return.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.requests import HTTPConnection

from siltstone.api.snapshot import Snapshot
from siltstone.api.store import Store
from siltstone.api.transaction import Transaction
from siltstone.errors import SiltstoneError
from siltstone.web.answers import refusal_of
from siltstone.web.threads import called, ended
from siltstone.web.transactions import begin
from siltstone.web.worker_store import WorkerStore

Given = Store | Callable[..., Any]
"""A store, or a dependency of FastAPI that returns one."""


def transaction(store: Given, **options: Any) -> Any:
    """Return a dependency of FastAPI: a transaction that is committed before the answer is sent.

    All that asks for the same dependency in one request gets the same transaction: name it once,
    `Tx = Annotated[st.Transaction, web.transaction(shop)]`. See `begin` for what becomes of errors.
    A dependency with `yield` that uses it needs `scope="function"`, too.

    Args:
        store: The store, or a dependency that returns it, which tests can override.
        options: Those of `Store.transaction`.
    """
    from fastapi import Depends  # noqa: PLC0415 - the application's own

    needed = Depends(_getter(store))
    worker = store if isinstance(store, WorkerStore) else None

    async def begun(
        connection: HTTPConnection, found: Store = needed
    ) -> AsyncGenerator[Transaction]:
        async with begin(connection, found, worker=worker, **options) as tx:
            yield tx

    return Depends(begun, scope="function")


def snapshot(store: Given, **moment: Any) -> Any:
    """Return a dependency of FastAPI: a snapshot that is open until the answer is sent.

    For handlers that read, above all for those whose answer is a stream of rows.

    Args:
        store: As for `transaction`.
        moment: As for `Store.snapshot`; by default now.
    """
    from fastapi import Depends  # noqa: PLC0415 - the application's own

    needed = Depends(_getter(store))

    async def taken(found: Store = needed) -> AsyncGenerator[Snapshot]:
        made: list[Snapshot] = []  # who is cancelled while it opens has it all the same
        try:
            try:
                await called(lambda: made.append(found.snapshot(**moment)))
            except SiltstoneError as error:
                raise refusal_of(error) or error from error
            yield made[0]
        finally:
            for each in made:
                await ended(each.close)

    return Depends(taken, scope="request")


def _getter(store: Given) -> Callable[..., Any]:
    """Return the dependency that gives the store."""
    if not isinstance(store, Store):
        return store

    async def given() -> Store:  # on the event loop: it needs no thread
        return store

    return given
