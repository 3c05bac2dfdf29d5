"""A table is created with its first rows in one step, or not at all, by every door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siltstone as st
from tests.server.stores import DOORS, behind, opened

ROWS = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bo", "spent": 1.5}]


@pytest.fixture(scope="module", params=DOORS)
def door(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[st.Store]:
    with behind(request.param, tmp_path_factory.mktemp("door") / "shop") as found:
        yield found


@pytest.fixture
def db(door: st.Store) -> Iterator[st.Store]:
    yield door
    for name in door.tables():
        door.drop_table(name)


GIVEN = {
    "dicts": lambda: ROWS,
    "an Arrow table": lambda: pa.Table.from_pylist(ROWS[::-1]),
    "a stream": lambda: pa.Table.from_pylist(ROWS[::-1]).to_reader(),
    "a frame of pandas": lambda: pd.DataFrame(ROWS),
    "a frame of Polars": lambda: pl.DataFrame(ROWS),
}


@pytest.mark.parametrize("given", GIVEN)
def test_the_schema_and_the_rows_come_from_the_data_in_one_commit(db: st.Store, given: str) -> None:
    seq = db.seq
    table = db.create_table("people", data=GIVEN[given](), primary_key="id")
    assert db.seq == seq + 1
    assert table.primary_key == ("id",)
    assert sorted(table.schema.names) == ["id", "name", "spent"]
    assert table.schema.field("id").type == pa.int64()
    assert table.schema.field("name").type in {pa.string(), pa.large_string()}
    assert table.get(2) == {"id": 2, "name": "Bo", "spent": 1.5}
    assert table.count() == 2


def test_a_plain_table_takes_rows_of_its_data_too(db: st.Store) -> None:
    assert db.create_table("log", data={"what": "start"}).to_arrow().to_pylist() == [
        {"what": "start"}
    ]
    assert db["log"].primary_key == ()


def test_data_is_fitted_to_a_schema_that_is_given(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int32", "v": "float32"}, "id", data=[{"id": 7}])
    assert table.get(7) == {"id": 7, "v": None}
    assert table.schema.field("id").type == pa.int32()


BAD = {
    "a key twice": (st.DuplicateKeyError, {"data": [{"id": 1}, {"id": 1}], "primary_key": "id"}),
    "a key that is null": (st.SchemaMismatchError, {"data": [{"id": None}, {"id": 1}]}),
    "no such key": (st.SchemaMismatchError, {"data": [{"x": 1}]}),
    "values of two types": (st.SchemaMismatchError, {"data": [{"id": 1}, {"id": "a"}]}),
    "nothing but nulls": (st.SchemaMismatchError, {"data": [{"id": 1, "x": None}]}),
    "no rows": (st.RequestError, {"data": []}),
    "no schema and no data": (st.RequestError, {}),
    "rows of another schema": (
        st.SchemaMismatchError,
        {"schema": {"id": "int64"}, "data": [{"id": 1, "y": 2}]},
    ),
    "no rows at all": (st.RequestError, {"data": 7}),
}


@pytest.mark.parametrize("name", BAD)
def test_of_bad_data_no_table_is_left(db: st.Store, name: str) -> None:
    error, given = BAD[name]
    seq = db.seq
    with pytest.raises(error):
        db.create_table("t", **{"primary_key": "id", **given})
    assert (db.tables(), db.seq) == ([], seq)
    with db.transaction() as tx:
        tx.create_table("kept", {"id": "int64"}, "id").insert({"id": 1})
        with pytest.raises(error):
            tx.create_table("t", **{"primary_key": "id", **given})
        assert tx.tables() == ["kept"]
        tx.create_table("t", data=[{"id": 3}], primary_key="id")
    assert db.tables() == ["kept", "t"]
    assert (db["kept"].count(), db["t"].get(3)) == (1, {"id": 3})


def test_a_table_that_exists_is_returned_as_it_is_if_that_is_allowed(db: st.Store) -> None:
    db.create_table("t", data=ROWS, primary_key="id").add_column("note", "string")
    seq = db.seq
    with pytest.raises(st.TableExistsError):
        db.create_table("t", data=ROWS, primary_key="id")
    for given in ({"data": [{"id": 9}]}, {"schema": {"id": "int64", "name": "string"}}, {}):
        found = db.create_table("t", primary_key="id", exist_ok=True, **given)
        assert found.count() == 2
    assert (found.id, db.seq) == (db["t"].id, seq)
    with db.transaction() as tx:
        assert tx.create_table("t", exist_ok=True).count() == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"primary_key": "name"}, r"with the key \['id'\], not \['name'\]"),
        ({"schema": {"id": "int64", "nam": "string"}}, "did you mean 'name'"),
        ({"schema": {"id": "int32"}}, "its 'id' is int64, not int32"),
    ],
)
def test_a_table_that_exists_with_other_columns_is_refused(
    db: st.Store, given: dict[str, object], said: str
) -> None:
    db.create_table("t", data=ROWS, primary_key="id")
    with pytest.raises(st.SchemaMismatchError, match=f"table 't' exists already.*{said}"):
        db.create_table("t", **given, exist_ok=True)


def test_a_table_that_another_commit_makes_meanwhile_is_returned_if_that_is_allowed(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "shop") as db:

        def rows() -> Iterator[dict[str, int]]:
            db.create_table("t", {"id": "int64"}, "id")
            yield {"id": 1}

        assert db.create_table("t", data=rows(), primary_key="id", exist_ok=True).count() == 0
        db.drop_table("t")
        with pytest.raises(st.TableExistsError):
            db.create_table("t", data=rows(), primary_key="id")


def test_a_table_made_again_under_its_token_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db:
        for _ in range(2):
            with db.transaction(token=("setup", 1)) as tx:
                tx.create_table("t", data=ROWS, primary_key="id", exist_ok=True)
        assert db["t"].count() == 2


def test_rows_of_a_new_table_survive_a_reopening(tmp_path: Path) -> None:
    with opened(tmp_path / "shop") as db:
        db.create_table("t", data=ROWS, primary_key="id")
        db.create_table("p", data=ROWS)
        with db.transaction() as tx:  # one that is refused is made and dropped in one commit
            tx["t"].upsert({"id": 3}, missing="null")
            with pytest.raises(st.SchemaMismatchError):
                tx.create_table("bad", {"id": "int64"}, data={"x": 1})
    with opened(tmp_path / "shop") as db:
        assert db.tables() == ["p", "t"]
        assert (db["t"].count(), db["p"].count()) == (3, 2)
        assert not db.verify().findings
