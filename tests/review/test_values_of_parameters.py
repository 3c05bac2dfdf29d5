"""A parameter is the value that was given, or one clear error says that it fits nowhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siltstone as st
from siltstone import dbapi


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as made:
        made.create_table("t", {"id": "int64", "f": "float64", "u": "uuid"}, primary_key="id")
        yield made


@pytest.mark.parametrize("values", [[math.nan], [1.5, math.nan, None], [math.nan, math.inf]])
def test_a_nan_of_many_rows_is_no_null(db: st.Store, values: list[Any]) -> None:
    con = dbapi.connect(db)
    con.cursor().executemany("insert into t (id, f) values (?, ?)", list(enumerate(values)))
    con.commit()
    con.close()
    found = [row["f"] for row in db["t"].to_arrow().sort_by("id").to_pylist()]
    assert [str(value) for value in found] == [str(value) for value in values]


@pytest.mark.parametrize(
    "statement",
    ["insert into t (id, u) values (1, ?)", "select ?::uuid", "select ?::int from t"],
)
def test_bytes_that_fit_nowhere_are_refused_in_words(db: st.Store, statement: str) -> None:
    db["t"].insert({"id": 5})
    seq = db.seq
    with pytest.raises(st.RequestError, match=r"refuses the statement: Conversion Error|is ext.*"):
        db.sql(statement, [b"\x00\xff"])
    con = dbapi.connect(db)
    with pytest.raises(dbapi.DataError):
        con.cursor().execute(statement, [b"\x00\xff"])
    con.close()
    assert db.seq == seq


def test_names_of_parameters_are_as_duckdb_tells_them_apart(db: st.Store) -> None:
    db["t"].insert({"id": 1, "f": 1.0})
    seq = db.seq
    db["t"].update(1, f=2.0)
    query = "select f from t at (version => $Then)"
    assert db.sql(query, {"then": seq}).fetchall() == [(1.0,)]
    both = "select f, $then from t at (version => $Then)"
    assert db.sql(both, {"THEN": seq}).fetchall() == [(1.0, seq)]


@pytest.mark.parametrize(
    "given", [[1.0, math.nan], (math.nan,), [[math.nan]], {"x": math.nan}, np.array([1, math.nan])]
)
def test_a_nan_within_a_parameter_is_refused_and_no_null(db: st.Store, given: Any) -> None:
    db.create_table("lists", {"id": "int64", "v": "list<float64>"}, primary_key="id")
    seq = db.seq
    for statement in ("insert into lists values (1, ?)", "select ?", "select 1 where ? is null"):
        with pytest.raises(st.RequestError, match="takes a NaN within a list or a struct for NULL"):
            db.sql(statement, [given])
    assert db.seq == seq
    assert math.isnan(db.sql("select ?::double", [math.nan]).fetchone()[0])  # type: ignore[index]


def test_a_list_within_itself_is_refused(db: st.Store) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(st.RequestError, match="within each other too often"):
        db.sql("select ?", [endless])
