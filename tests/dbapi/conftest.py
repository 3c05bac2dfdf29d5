"""Connections to a store with one table, `t`, of a key and a number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from siltstone import dbapi
from tests.server.stores import DOORS, behind


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64", "n": "int64"}, primary_key="id")
        db["t"].insert({"id": 1, "n": 10})
        yield db


@pytest.fixture
def con(db: st.Store) -> Iterator[dbapi.Connection]:
    con = dbapi.connect(db)
    yield con
    con.close()


@pytest.fixture
def cur(con: dbapi.Connection) -> dbapi.Cursor:
    return con.cursor()


@pytest.fixture(params=DOORS)
def at_door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    """Give the store to its owner, or to one who joined it by a socket or a URL."""
    with behind(request.param, tmp_path / "s") as db:
        db.create_table("t", {"id": "int64", "n": "int64"}, primary_key="id")
        db["t"].insert({"id": 1, "n": 10})
        yield db
