from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import siltstone as st
from siltstone.server.rest.server import RestServer
from tests.conformance.guests import Guest, Path
from tests.conformance.lancedb_guests import HOST
from tests.server.rest import rest_of

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[st.Store, RestServer]]:
    """One store and its server for the cases of a module; each case has tables of its own."""
    path = tmp_path_factory.mktemp("conformance") / "shop"
    with rest_of(path, allowed_hosts=[HOST]) as (db, service, _):
        yield db, service


@pytest.fixture
def guest(request: pytest.FixtureRequest, served: tuple[st.Store, RestServer]) -> Guest:
    return request.param(*served)


@pytest.fixture
def team() -> str:
    """A namespace of which nobody knows yet."""
    return f"team{next(_numbers)}"


@pytest.fixture
def table() -> Path:
    """A table of the root of which nobody knows yet."""
    return [f"table{next(_numbers)}"]
