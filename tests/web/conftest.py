from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st


def made(path: Path) -> st.Store:
    db = st.connect(path, background=False)
    db.create_table(
        "stock", {"item": "string", "n": "int64"}, "item", data={"item": "lamp", "n": 0}
    )
    db.create_table("orders", {"id": "int64", "item": "string"}, "id")
    return db


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with made(tmp_path / "shop") as db:
        yield db


@pytest.fixture
def other(tmp_path: Path) -> Iterator[st.Store]:
    with made(tmp_path / "other") as db:
        yield db


@pytest.fixture(params=["def", "async def"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param == "async def"
