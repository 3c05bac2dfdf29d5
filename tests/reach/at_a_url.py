"""A plugin of pytest: suites of queries, whose fixture `db` is a store, read its mirror at a URL.

    pytest -p tests.reach.at_a_url tests/query/test_sql_nan.py     with the environment of a bucket

What the fixture made is flushed and mirrored to $SILTSTONE_TESTS_URL/<number>; the tests get a
reader of that instead of the store.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from itertools import count
from typing import Any

import pytest

import siltstone as st
from tests.reach.conftest import mirror

_numbers = count()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    found = yield
    if fixturedef.argname != "db":
        return found
    assert isinstance(found, st.Store)
    url = f"{os.environ['SILTSTONE_TESTS_URL']}/{next(_numbers)}"
    found.checkpoint()
    mirror(found.path, url)
    far = st.connect(url, read_only=True)
    fixturedef.addfinalizer(far.close)
    assert fixturedef.cached_result is not None
    fixturedef.cached_result = (far, fixturedef.cached_result[1], None)
    return far
