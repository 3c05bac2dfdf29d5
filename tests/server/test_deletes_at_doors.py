"""A delete by keys counts what lived, and refuses a filter, at every door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siltstone as st
from tests.server.rest import Rest, rest_of
from tests.server.stores import DOORS, behind

COLUMNS = {"id": "string", "n": "int64"}
ROWS = [{"id": each, "n": 1} for each in ("a", "b", "c", "n = 1")]


@pytest.fixture(params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with behind(request.param, tmp_path / "shop") as found:
        found.create_table("t", COLUMNS, primary_key="id").insert(ROWS)
        yield found


def test_only_rows_that_lived_count(db: st.Store) -> None:
    assert db["t"].delete(["a", "nobody"]).rows == 1
    with db.transaction() as tx:
        assert tx["t"].delete(["a", "b"]) == 1
        assert tx["t"].delete(map(str, range(10_001))) is None
    assert db["t"].delete(map(str, range(10_001))).rows is None
    assert db["t"].count() == 2


def test_a_filter_in_the_place_of_a_key_is_refused(db: st.Store) -> None:
    with pytest.raises(st.RequestError, match=r"\"id = 'a'\".*use delete_where"):
        db["t"].delete("id = 'a'")
    with db.transaction() as tx:
        with pytest.raises(st.RequestError, match="use delete_where"):
            tx["t"].delete("n > 0")
        assert tx["t"].delete("n = 1") == 1
    assert db["t"].count() == 3


Served = tuple[st.Store, Rest]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("t", COLUMNS, primary_key="id").insert(ROWS)
        yield db, rest


def applied(served: Served, keys: list[Any]) -> Any:
    ops = [{"op": "delete", "table": "t", "keys": keys}]
    return served[1].post("/v1/transaction/apply", {"ops": ops})


def test_apply_counts_rows_that_lived(served: Served) -> None:
    for keys, rows in ((["a", "nobody"], 1), (["a"], 0), ([{"id": "b"}], 1), ([], 0)):
        answer = applied(served, keys)
        assert answer.status == 200, answer.body
        assert answer.json["results"] == [{"rows": rows}]
    assert applied(served, [*map(str, range(10_001))]).json["results"] == [{"rows": None}]


def test_apply_refuses_a_filter_in_the_place_of_a_key(served: Served) -> None:
    answer = applied(served, ["id = 'a'"])
    assert answer.status == 400
    assert "use delete_where" in answer.json["error"]
    assert "{'id': ...}" in answer.json["error"]
    assert served[0]["t"].count() == 4
    assert applied(served, ["n = 1"]).json["results"] == [{"rows": 1}]
    assert applied(served, [{"id": "n = 1"}]).json["results"] == [{"rows": 0}]


def test_a_key_over_rest_is_no_list_of_keys(tmp_path: Path) -> None:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("t", COLUMNS, primary_key="id").insert(ROWS)
        delete = {"op": "delete", "table": "t", "keys": [[["a", "b"]]]}
        assert rest.post("/v1/transaction/apply", {"ops": [delete]}).status == 400
        assert db["t"].count() == 4
