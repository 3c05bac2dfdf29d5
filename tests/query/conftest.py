from __future__ import annotations

from collections.abc import Iterator

import pytest

import siltstone as st
from tests.query import filter_tables


@pytest.fixture(scope="session")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    """Yield the store of `filter_tables`; a test that writes to it rolls back."""
    with filter_tables.opened(tmp_path_factory.mktemp("filters") / "db") as store:
        yield store
