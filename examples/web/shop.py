"""A shop: each request is a transaction, in any number of workers.

pip install siltstone[server] fastapi
SHOP=/data/shop uvicorn shop:app --workers 4 --timeout-graceful-shutdown 20
"""

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, FastAPI, HTTPException
from pydantic import BaseModel

import siltstone as st
from siltstone import web

shop = web.WorkerStore(os.environ.get("SHOP", "shop"))
Tx = Annotated[st.Transaction, web.transaction(shop)]
Past = Annotated[st.Snapshot, web.snapshot(shop)]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with shop as db:
        db.create_table("orders", {"id": "int64", "item": "string"}, "id", exist_ok=True)
        db.create_table("sold", {"item": "string", "n": "int64"}, "item", exist_ok=True)
        yield


class Order(BaseModel):
    id: int
    item: str


router = APIRouter(route_class=web.RetryRoute)


@router.post("/orders")
def add(order: Order, tx: Tx, background: BackgroundTasks) -> dict[str, int]:
    tx["orders"].insert(order.model_dump())
    row = tx["sold"].get(order.item) or {"item": order.item, "n": 0}
    tx["sold"].upsert({**row, "n": row["n"] + 1})
    background.add_task(print, "confirmed", order.id)  # once, after the commit
    return {"sold": row["n"] + 1}


@router.delete("/orders/{number}")
async def cancel(number: int, tx: Tx) -> None:
    order = tx["orders"].get(number)
    if order is None:
        raise HTTPException(404, "no such order")  # what was done so far is rolled back
    tx["orders"].delete(number)
    row = tx["sold"].get(order["item"])
    assert row is not None
    tx["sold"].update(order["item"], n=row["n"] - 1)


@router.get("/orders")
def orders(past: Past) -> Iterator[dict[str, Any]]:
    """A stream of lines: all of one moment, however long the client takes to read them."""
    for batch in past["orders"].scan():
        yield from batch.to_pylist()


app = FastAPI(lifespan=lifespan, exception_handlers={st.SiltstoneError: web.answer})
app.include_router(router)
