from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.engine.recover import nearby
from siltstone.joined.store import JoinedStore
from tests.server.stores import served

WAYS = ("near", "asking")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the suites of joined stores twice: reading the files, and asking the owner."""
    marks = metafunc.definition.iter_markers("parametrize")
    is_told = any(mark.args[0] == "way" for mark in marks)
    if metafunc.module.__name__.rpartition(".")[2].startswith("test_joined") and not is_told:
        metafunc.parametrize("way", WAYS, indirect=True)


@pytest.fixture(autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How stores that are joined are read, also in processes that the test starts."""
    found: str = getattr(request, "param", "near")
    if found == "asking":
        monkeypatch.setenv("SILTSTONE_JOIN_BYTES_MAX", "0")
    else:
        monkeypatch.setattr(nearby, "WAIT_S", 60.0)  # of this process: a read never asks
    return found


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[st.Store, JoinedStore]]:
    with served(tmp_path / "shop") as pair:
        owner, _ = pair
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        owner["t"].upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])
        yield pair
