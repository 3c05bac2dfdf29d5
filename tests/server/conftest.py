from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone.joined.store import JoinedStore
from tests.server.stores import served


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[st.Store, JoinedStore]]:
    with served(tmp_path / "shop") as pair:
        owner, _ = pair
        owner.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        owner["t"].upsert([{"id": 1, "v": 10}, {"id": 2, "v": 20}])
        yield pair
