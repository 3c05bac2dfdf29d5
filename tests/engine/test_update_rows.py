"""Rows are updated by key, some columns each (`update_many`), or where a filter matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.errors import SchemaMismatchError

COLUMNS = {"id": "int64", "n": "int64", "s": "string"}
OLD = [{"id": 1, "n": 10, "s": "a"}, {"id": 2, "n": 20, "s": "b"}, {"id": 3, "n": 30, "s": None}]
Rows = list[dict[str, Any]]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as made:
        made.create_table("t", COLUMNS, primary_key="id").insert(OLD)
        made.create_table("plain", COLUMNS).append(OLD)
        yield made


Call = Callable[..., int]


@pytest.fixture(params=["table", "transaction", "serializable", "merged"])
def call(request: pytest.FixtureRequest, db: st.Store) -> Call:
    """Return what calls a method of a table; it returns the number of rows."""
    if request.param == "merged":
        db.merge()

    def alone(table: str, method: str, *given: object, **named: object) -> int:
        return getattr(db[table], method)(*given, **named).rows

    def within(table: str, method: str, *given: object, **named: object) -> int:
        isolation = "serializable" if request.param == "serializable" else "snapshot"
        with db.transaction(isolation=isolation) as tx:
            return getattr(tx[table], method)(*given, **named)

    return alone if request.param in {"table", "merged"} else within


def rows_of(db: st.Store, table: str = "t") -> Rows:
    return sorted(db[table].to_arrow().to_pylist(), key=lambda row: row["id"])


FORMS: dict[str, Callable[[Rows], object]] = {
    "dicts": lambda rows: rows,
    "generator": lambda rows: (row for row in rows),
    "table": pa.Table.from_pylist,
    "stream": lambda rows: pa.Table.from_pylist(rows).to_reader(),
    "polars": pl.DataFrame,
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_updated_by_key_and_no_row_is_made(db: st.Store, call: Call, form: str) -> None:
    given = FORMS[form]([{"id": 2, "n": 21}, {"id": 9, "n": 9}, {"id": 1, "n": None}])
    assert call("t", "update_many", given) == 2
    assert rows_of(db) == [{"id": 1, "n": None, "s": "a"}, {"id": 2, "n": 21, "s": "b"}, OLD[2]]


def test_each_row_names_its_own_columns(db: st.Store, call: Call) -> None:
    given = [{"id": 1, "n": 1}, {"id": 2, "s": "bb"}, {"id": 1, "s": "aa"}, {"id": 3}]
    assert call("t", "update_many", given) == 3
    assert call("t", "update_many", {"id": 3, "s": "c"}) == 1
    assert call("t", "update_many", {"id": 4, "s": "c"}) == 0
    assert call("t", "update_many", []) == 0
    assert rows_of(db) == [
        {"id": 1, "n": 1, "s": "aa"}, {"id": 2, "n": 20, "s": "bb"}, {"id": 3, "n": 30, "s": "c"}
    ]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_wrong_rows_of_an_update_change_nothing(db: st.Store, call: Call, form: str) -> None:
    good = {"id": 1, "n": 11}
    for wrong, says in (
        ({"id": 2, "nn": 1}, r"no column 'nn'; did you mean 'n'\?|no columns? \['nn'\]|'nn'"),
        ({"n": 1}, "column 'id' may not be null or missing"),
        ({"id": 2, "n": "x"}, "column 'n' is int64"),
    ):
        with pytest.raises(SchemaMismatchError, match=says):
            call("t", "update_many", FORMS[form]([wrong]))
        with pytest.raises(SchemaMismatchError):
            call("t", "update_many", [good, wrong])
    with pytest.raises(st.RequestError, match="rows must be a dict"):
        call("t", "update_many", 7)
    with pytest.raises(st.RequestError, match="is a plain table"):
        call("plain", "update_many", [good])
    assert rows_of(db) == OLD


def test_values_are_the_same_in_every_row_that_matches(db: st.Store, call: Call) -> None:
    for table in ("t", "plain"):
        assert call(table, "update_where", "n >= 20", {"s": "x"}) == 2
        assert call(table, "update_where", "n > 99", {"s": "x"}) == 0
        assert call(table, "update_where", "id = 1", values={"s": None, "n": 1}) == 1
        assert rows_of(db, table) == [
            {"id": 1, "n": 1, "s": None}, {"id": 2, "n": 20, "s": "x"}, {"id": 3, "n": 30, "s": "x"}
        ]  # fmt: skip


def test_expressions_are_over_the_row_as_it_was(db: st.Store, call: Call) -> None:
    for table in ("t", "plain"):
        changed = {"n": "n + id", "s": "upper(s)"}
        assert call(table, "update_where", "s is not null", sql=changed) == 2
        assert call(table, "update_where", "true", {"s": "y"}, {"n": "n * 2"}) == 3
        assert rows_of(db, table) == [
            {"id": 1, "n": 22, "s": "y"}, {"id": 2, "n": 44, "s": "y"}, {"id": 3, "n": 60, "s": "y"}
        ]  # fmt: skip


WRONG: list[tuple[tuple[object, ...], str]] = [
    (("true",), "values, or sql, or both"),
    (("true", {}, {}), "values, or sql, or both"),
    (("true", {"n": 1}, {"n": "2"}), r"\['n'\] are both in values and in sql"),
    (("true", {"id": 1}), r"\['id'\] are the key"),
    (("true", None, {"id": "1"}), r"\['id'\] are the key"),
    (("true", {"nn": 1}), "no column.*'nn'"),
    (("true", None, {"nn": "1"}), "no column.*'nn'"),
    (("true", {"n": "x"}), "column 'n' is int64"),
    (("true", None, {"n": "s"}), "n"),
    (("true", None, {"n": "n +"}), "does not parse"),
    (("true", None, {"n": "other"}), "other"),
    (("true", None, {"n": 1}), "sql .*text"),
    (("true", 7), "values must be"),
    (("true", None, "n = 1"), "sql must be"),
    ((None, {"n": 1}), "needs a filter"),
    (("n >", {"n": 1}), "does not parse"),
]


@pytest.mark.parametrize(("given", "says"), WRONG)
def test_wrong_arguments_of_update_where_change_nothing(
    db: st.Store, call: Call, given: tuple[object, ...], says: str
) -> None:
    for table in ("t", "plain"):
        if table == "plain" and "key" in says:
            continue
        with pytest.raises(st.RequestError, match=says):
            call(table, "update_where", *given)
        assert rows_of(db, table) == OLD


def test_a_column_that_takes_no_null_refuses_one(db: st.Store) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64(), False)])
    for key in ("id", ()):
        table = db.create_table(f"strict{len(key)}", schema, primary_key=key)
        (table.insert if key else table.append)([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
        for given in (({"n": None}, None), (None, {"n": "null"}), (None, {"n": "nullif(n, 2)"})):
            with pytest.raises(st.RequestError):
                table.update_where("true", *given)
        assert sorted(table.to_arrow().column("n").to_pylist()) == [1, 2]
        if key:
            with pytest.raises(SchemaMismatchError, match="'n' may not be null"):
                table.update_many([{"id": 1, "n": None}])


def test_both_see_the_rows_of_their_own_transaction(db: st.Store) -> None:
    with db.transaction() as tx:
        tx["t"].insert({"id": 4, "n": 40, "s": "d"})
        tx["t"].delete([1])
        assert tx["t"].update_where("n >= 30", sql={"n": "n + 1"}) == 2
        assert tx["t"].update_many([{"id": 1, "n": 0}, {"id": 4, "s": "dd"}]) == 1
        assert tx["t"].get(4) == {"id": 4, "n": 41, "s": "dd"}
    assert [row["n"] for row in rows_of(db)] == [20, 31, 41]


def test_an_update_conflicts_with_another_of_the_same_row(db: st.Store) -> None:
    for work in (
        lambda table: table.update_many([{"id": 1, "n": 11}]),
        lambda table: table.update_where("id = 1", {"n": 11}),
    ):
        tx = db.transaction()
        work(tx["t"])
        db["t"].update(1, s="theirs")
        with pytest.raises(st.ConflictError):
            tx.commit()


def test_a_serializable_update_where_conflicts_with_a_row_that_comes_to_match(db: st.Store) -> None:
    tx = db.transaction(isolation="serializable")
    tx["t"].update_where("n >= 20", {"s": "x"})
    db["t"].insert({"id": 4, "n": 40, "s": "d"})
    with pytest.raises(st.ConflictError):
        tx.commit()
    tx = db.transaction(isolation="serializable")
    assert tx["t"].update_many([{"id": 5, "n": 1}]) == 0
    tx["t"].update(1, s="because 5 is not there")
    db["t"].insert({"id": 5, "n": 40, "s": "d"})
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_nested_values_are_updated_and_kept(db: st.Store) -> None:
    fields = [
        ("id", pa.int64()),
        ("v", pa.list_(pa.float32(), 2)),
        ("d", pa.struct([("a", pa.int64())])),
    ]
    for key in ("id", ()):
        table = db.create_table(f"nested{len(key)}", pa.schema(fields), primary_key=key)
        rows = [{"id": n, "v": [n, n], "d": {"a": n}} for n in (1, 2)]
        (table.insert if key else table.append)(pa.Table.from_pylist(rows, pa.schema(fields)))
        assert table.update_where("id = 2", {"v": [9.0, 9.0]}).rows == 1
        assert table.update_where("id = 1", {"d": {"a": None}}).rows == 1
        assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == [
            {"id": 1, "v": [1, 1], "d": {"a": None}}, {"id": 2, "v": [9, 9], "d": {"a": 2}}
        ]  # fmt: skip


def test_many_rows_are_updated_in_one_commit(db: st.Store) -> None:
    table, count = db["t"], 5_000
    table.upsert(pa.table({"id": range(count), "n": range(count), "s": ["s"] * count}))
    db.merge()
    receipt = table.update_many(pa.table({"id": range(count + 10), "n": [-1] * (count + 10)}))
    assert receipt.rows == count
    assert table.update_where("id < 4000", sql={"n": "id * 2"}).rows == 4_000
    found = table.to_arrow().to_pandas()
    assert (found.n == -1).sum() == 1_000
    assert (found.s == "s").all()
