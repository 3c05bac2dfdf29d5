"""pandas and Polars read a connection as any database of PEP 249; neither writes by it."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pytest

import siltstone as st
from siltstone import dbapi

_WARNED = pytest.warns(UserWarning, match="pandas only supports SQLAlchemy")


def test_pandas_reads_a_query(con: dbapi.Connection, db: st.Store) -> None:
    db["t"].insert([{"id": n, "n": None} for n in range(2, 20_000)])
    with _WARNED:
        found = pd.read_sql("select id, n from t where id < ? order by id", con, params=[3])
    assert found.to_dict("list")["id"] == [1, 2]
    assert found.n[0] == 10
    with _WARNED:
        parts = pd.read_sql("select * from t", con, chunksize=6_000, index_col="id")
        assert sorted(map(len, parts)) == [1_999, 6_000, 6_000, 6_000]
    with _WARNED:
        empty = pd.read_sql("select * from t where id < 0", con)
    assert (list(empty.columns), len(empty)) == (["id", "n"], 0)


def test_pandas_tells_what_is_wrong_with_a_query(con: dbapi.Connection) -> None:
    with _WARNED, pytest.raises(Exception, match="there is no table 'nope'"):
        pd.read_sql("select * from nope", con)


@pytest.mark.parametrize("if_exists", ["fail", "append", "replace"])
def test_pandas_writes_nothing_and_says_how_to_write(con: dbapi.Connection, if_exists) -> None:
    con.cursor().execute("update t set n = 11")
    frame = pd.DataFrame({"id": [5], "n": [50]})
    with (
        _WARNED,
        pytest.raises(dbapi.NotSupportedError, match=r"to_sql\(\) of pandas is not offered"),
    ):
        frame.to_sql("t", con, if_exists=if_exists)


def test_what_the_refusal_of_pandas_names_works(db: st.Store) -> None:
    frame = pd.DataFrame({"id": [5], "n": [50]})
    db["t"].upsert(frame)
    db.sql("insert or replace into t from frame")
    assert db["t"].get(5) == {"id": 5, "n": 50}


def test_polars_reads_a_query_with_the_types_of_its_columns(con: dbapi.Connection) -> None:
    text = "select id, n, 1.25 as d, [1] as l, sum(n) as s from t where id = ? group by all"
    found = pl.read_database(text, con, execute_options={"parameters": [1]})
    assert found.rows() == [(1, 10, pytest.approx(1.25), [1], 10)]
    assert found.schema["d"] == pl.Decimal(3, 2)
    empty = pl.read_database("select id, 'x' as s, 0.5::float as f from t where id < 0", con)
    assert dict(empty.schema) == {"id": pl.Int64, "s": pl.String, "f": pl.Float32}
    assert pl.read_database("select * from t", con.cursor()).rows() == [(1, 10)]


def test_polars_reads_in_batches(con: dbapi.Connection) -> None:
    text = "select range as n from range(50000)"
    parts = pl.read_database(text, con, iter_batches=True, batch_size=20_000)
    assert [part.height for part in parts] == [20_000, 20_000, 10_000]
