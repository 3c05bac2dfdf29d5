"""Applications of one handler, for tests."""

from typing import Annotated, Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

import siltstone as st
from siltstone import web


def count(db: st.Store) -> int:
    row = db["stock"].get("lamp")
    assert row is not None
    return row["n"]


def add_one(tx: st.Transaction) -> int:
    row = tx["stock"].get("lamp")
    assert row is not None
    tx["stock"].update("lamp", n=row["n"] + 1)
    return row["n"] + 1


def app_of(
    db: st.Store, work: Any, *, is_async: bool = False, route: type[APIRoute] = APIRoute
) -> FastAPI:
    """Return an app whose one handler does `work` in a transaction."""
    app, router = FastAPI(), APIRouter(route_class=route)
    given = web.transaction(db)
    if is_async:

        @router.post("/orders")
        async def on_the_loop(tx: Annotated[st.Transaction, given]) -> Any:
            return work(tx)
    else:

        @router.post("/orders")
        def in_a_thread(tx: Annotated[st.Transaction, given]) -> Any:
            return work(tx)

    app.include_router(router)
    return app
