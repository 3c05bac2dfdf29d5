"""A store with two tables, as its owner has it, or as one who joined it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import siltstone as st
from tests.server.stores import DOORS, behind

ORDERS = {"id": "int64", "who": "string", "total": "float64", "day": "date"}


def filled(db: st.Store) -> st.Store:
    db.create_table("orders", ORDERS, "id")
    db.create_table("events", {"n": "int64", "note": "string"})
    db.create_table("rates", {"who": "string", "rate": "float64"}, "who")
    db.sql(
        "insert into orders values (1, 'ada', 10, '2026-01-01'), (2, 'bo', 20, '2026-01-02'),"
        " (3, null, null, null)"
    )
    db.sql("insert into events values (1, 'a'), (2, 'b'), (2, null)")
    db.sql("insert into rates values ('ada', 2), ('bo', 3)")
    return db


@pytest.fixture(params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with behind(request.param, tmp_path / "shop") as found:
        yield filled(found)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[st.Store]:
    with behind("owner", tmp_path / "shop") as found:
        yield filled(found)
