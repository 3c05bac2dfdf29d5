"""A plugin of pytest: suites of queries, whose fixture `db` is a store, read its mirror at a URL.

    pytest -p tests.reach.at_a_url tests/query/test_sql_nan.py     with the environment of a bucket

What the fixture makes is mirrored to $SILTSTONE_TESTS_URL/<number> after each table that is
created, each checkpoint and each merge, so the bucket has the store's whole past; the tests get a
reader of that instead of the store. Its tables are Lance's, also where the suite simulates them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from siltstone.local.store import LocalStore
from tests.maintenance.stores import open_store
from tests.reach.conftest import mirror

_numbers = count()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    if fixturedef.argname != "db":
        return (yield)
    urls = defaultdict[Path, str](lambda: f"{os.environ['SILTSTONE_TESTS_URL']}/{next(_numbers)}")
    with pytest.MonkeyPatch.context() as patch:
        for step in ("create_table", "checkpoint", "merge"):
            patch.setattr(LocalStore, step, _mirrored(getattr(LocalStore, step), urls))
        patch.setitem(open_store.__kwdefaults__, "real_lance", True)
        found = yield
        assert isinstance(found, st.Store)
        found.checkpoint()
    far = st.connect(urls[found.path], read_only=True)
    fixturedef.addfinalizer(far.close)
    assert fixturedef.cached_result is not None
    fixturedef.cached_result = (far, fixturedef.cached_result[1], None)
    return far


def _mirrored(step: Callable[..., Any], urls: dict[Path, str]) -> Callable[..., Any]:
    def done(db: LocalStore, *given: Any, **options: Any) -> Any:
        answer = step(db, *given, **options)
        mirror(db.path, urls[db.path])
        return answer

    return done
