"""What docs/web.md and the guide show of web applications is the example's code, and runs."""

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI

import siltstone as st
from tests.test_documents import blocks_of
from tests.web.serving import served
from tests.web.shop import add_one, count

ROOT = Path(__file__).parents[2]


@pytest.mark.filterwarnings("ignore:Using `httpx` with")  # Starlette asks for its successor
def test_the_code_of_the_page_runs_and_prints_what_stands_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    monkeypatch.setitem(sys.modules, "page", type(sys)("page"))  # where pydantic looks for types
    for block in blocks_of("docs/web.md"):
        exec(compile("\n" * block.line + block.code, "docs/web.md", "exec"), names)
        assert capsys.readouterr().out == block.output, f"line {block.line}"
    names["db"].close()
    test_client = names["TestClient"]
    names["app"].dependency_overrides.clear()
    with test_client(names["app"]) as client:
        assert client.post("/orders", json={"id": 1, "item": "lamp"}).json() == {"sold": 1}
        assert client.delete("/orders/2").status_code == 404
        assert client.delete("/orders/1").status_code == 200
        assert client.post("/orders", json={"id": 3, "item": "lamp"}).json() == {"sold": 1}
        assert test_client(names["starlette_app"]).delete("/orders").json() == {"gone": 1}


def test_the_page_shows_the_example() -> None:
    code = (ROOT / "examples" / "web" / "shop.py").read_text()
    assert blocks_of("docs/web.md")[0].code == code


def test_the_code_of_the_guide_answers_after_the_commit(db: st.Store) -> None:
    """It is no block of Python there: the guide's own test needs no FastAPI."""
    text = (ROOT / "docs" / "guide.md").read_text().partition("### In FastAPI")[2]
    code = re.search(r"^```\n(.*?)^```\n", text, re.MULTILINE | re.DOTALL)
    assert code is not None
    db.create_table("spent", {"id": "int64", "n": "int64"}, "id", data={"id": 7, "n": 0})
    names: dict[str, Any] = {"db": db, "st": st}
    exec(code[1], names)
    with served(names["app"]) as url:
        assert httpx.post(f"{url}/orders").json() == {"ok": True}
    assert db["spent"].get(7) == {"id": 7, "n": 1}


def test_a_plain_dependency_answers_200_for_a_commit_that_is_refused_afterwards(
    db: st.Store,
) -> None:
    """That is why `web.transaction` says its scope."""
    app = FastAPI()

    def transaction() -> Iterator[st.Transaction]:
        with db.transaction() as tx:
            yield tx

    @app.post("/orders")
    def add(tx: Annotated[st.Transaction, Depends(transaction)]) -> int:
        db["stock"].update("lamp", n=100)
        return add_one(tx)

    async def posted() -> int:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return (await client.post("/orders")).status_code

    assert asyncio.run(posted()) == 200
    assert count(db) == 100
