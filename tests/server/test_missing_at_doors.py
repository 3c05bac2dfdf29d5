"""What becomes of missing columns, and updates of rows, are the same at every door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st
from tests.server.rest import Rest, rest_of
from tests.server.stores import DOORS, behind

COLUMNS = {"id": "int64", "n": "int64", "s": "string", "at": "timestamp[us]"}
OLD = [
    {"id": 1, "n": 10, "s": "a", "at": None},
    {"id": 2, "n": 20, "s": "b", "at": None},
]


@pytest.fixture(params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with behind(request.param, tmp_path / "shop") as found:
        found.create_table("t", COLUMNS, primary_key="id")
        found["t"].insert(OLD)
        yield found


def rows_of(db: st.Store) -> list[dict[str, Any]]:
    return sorted(db["t"].to_arrow().to_pylist(), key=lambda row: row["id"])


FORMS = {
    "dict": lambda row: row,
    "list": lambda row: [row],
    "arrow": lambda row: pa.Table.from_pylist([row]),
}


@pytest.mark.parametrize("form", FORMS)
def test_missing_columns_are_refused_kept_or_null(db: st.Store, form: str) -> None:
    given: Any = FORMS[form]({"id": 1, "n": 5})
    for work in (db["t"].upsert, lambda rows: db.run(lambda tx: tx["t"].upsert(rows))):
        with pytest.raises(st.SchemaMismatchError, match=r"'s', 'at'.*\"keep\".*\"null\".*insert"):
            work(given)
    assert rows_of(db) == OLD
    assert db["t"].upsert(given, missing="keep").rows == 1
    assert rows_of(db) == [OLD[0] | {"n": 5}, OLD[1]]
    with db.transaction() as tx:
        assert tx["t"].upsert(FORMS[form]({"id": 2, "n": 6}), "null") == 1
    assert rows_of(db)[1] == {"id": 2, "n": 6, "s": None, "at": None}
    with pytest.raises(st.RequestError, match="refuse, keep, null"):
        db["t"].upsert(given, missing="leave")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_updated_by_key(db: st.Store, form: str) -> None:
    assert db["t"].update_many(FORMS[form]({"id": 1, "n": 5})).rows == 1
    with db.transaction() as tx:
        assert tx["t"].update_many(FORMS[form]({"id": 9, "n": 5})) == 0
        assert tx["t"].update_many(FORMS[form]({"id": 2, "s": None})) == 1
    assert rows_of(db) == [OLD[0] | {"n": 5}, OLD[1] | {"s": None}]


def test_rows_are_updated_where_a_filter_matches(db: st.Store) -> None:
    assert db["t"].update_where("n > 10", {"s": "x"}).rows == 1
    with db.transaction() as tx:
        assert tx["t"].update_where("true", values={"s": "y"}, sql={"n": "n + 1"}) == 2
    assert rows_of(db) == [OLD[0] | {"n": 11, "s": "y"}, OLD[1] | {"n": 21, "s": "y"}]
    with pytest.raises(st.RequestError, match="values, or sql, or both"):
        db["t"].update_where("true")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[st.Store, Rest]]:
    with rest_of(tmp_path / "shop") as (db, _, rest):
        db.create_table("t", COLUMNS, primary_key="id")
        db["t"].insert(OLD)
        yield db, rest


Served = tuple[st.Store, Rest]


def applied(served: Served, *ops: dict[str, Any]) -> Any:
    return served[1].post("/v1/transaction/apply", {"ops": [{"table": "t", **one} for one in ops]})


def test_apply_refuses_missing_columns_alone_and_among_others(served: Served) -> None:
    lacking = {"op": "upsert", "rows": [{"id": 1, "n": 5}]}
    for ops in ([lacking], [lacking, {"op": "delete", "keys": [2]}]):
        answer = applied(served, *ops)
        assert answer.status == 400, answer.body
        assert "insert" in answer.json["error"]
        assert "'s', 'at'" in answer.json["error"]
    answer = applied(served, {**lacking, "missing": "leave"})
    assert answer.status == 400
    assert rows_of(served[0]) == OLD


def test_apply_keeps_missing_columns_or_makes_them_null_by_the_row(served: Served) -> None:
    rows = [{"id": 1, "n": 5}, {"id": 2, "at": "2026-01-02T03:04:05"}, {"id": 3}]
    for one in ({"op": "upsert", "rows": [rows[0]]}, {"op": "upsert", "rows": rows}):
        assert applied(served, {**one, "missing": "keep"}).status == 200
    kept = rows_of(served[0])
    assert [(row["n"], row["s"]) for row in kept] == [(5, "a"), (20, "b"), (None, None)]
    assert kept[1]["at"].year == 2026
    assert applied(served, {"op": "upsert", "rows": [rows[0]], "missing": "null"}).status == 200
    assert rows_of(served[0])[0] == {"id": 1, "n": 5, "s": None, "at": None}


def test_apply_updates_rows(served: Served) -> None:
    answer = applied(
        served,
        {"op": "update_many", "rows": [{"id": 1, "n": 5}, {"id": 7, "s": "x"}]},
        {"op": "update_where", "filter": "n = 20", "values": {"at": "2026-01-02T03:04:05"}},
        {"op": "update_where", "filter": "true", "sql": {"n": "n + 1"}},
    )
    assert answer.status == 200, answer.body
    assert [each["rows"] for each in answer.json["results"]] == [1, 1, 2]
    assert [row["n"] for row in rows_of(served[0])] == [6, 21]
    assert applied(served, {"op": "update_where", "filter": "true"}).status == 400
    assert applied(served, {"op": "update_many", "rows": [{"n": 1}]}).status == 400


def test_the_openapi_document_has_the_words(served: Served) -> None:
    kinds = served[1].get("/openapi.json").json["components"]["schemas"]
    assert str(kinds["UpsertRows"]["properties"]["missing"]).count("keep") == 1
    assert {"UpdateMany", "UpdateWhere"} <= kinds.keys()
