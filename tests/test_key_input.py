"""Keys may come as any column of values: of Arrow, pandas, Polars or NumPy, or one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siltstone as st
from tests.server.stores import served

COLUMNS: dict[str, Callable[[list[int]], object]] = {
    "arrow array": pa.array,
    "chunked array": lambda ids: pa.chunked_array([[each] for each in ids], pa.int64()),
    "numpy array": np.array,
    "pandas series": pd.Series,
    "pandas index": pd.Index,
    "pandas frame": lambda ids: pd.DataFrame({"id": ids}),
    "polars series": lambda ids: pl.Series("anything", ids),
    "polars frame": lambda ids: pl.DataFrame({"id": ids}),
    "structs": lambda ids: pa.array([{"id": each} for each in ids]),
    "generator": lambda ids: (each for each in ids),
    "keys of a dict": lambda ids: dict.fromkeys(ids).keys(),
    "list": list,
}
MOMENTS = np.array(["2026-01-01T00:00:00.000000001", "1969-12-31T00:00:00"], "M8[ns]")


@pytest.fixture(params=["local", "joined"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with served(tmp_path / "s") as (owner, joined):
        yield owner if request.param == "local" else joined


@pytest.fixture
def table(db: st.Store) -> st.Table:
    made = db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
    made.insert([{"id": each, "v": str(each)} for each in range(5)])
    return made


@pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)
def test_a_column_of_keys_reads_each_of_them_once_in_its_order(
    table: st.Table, make: Callable[[list[int]], object]
) -> None:
    assert table.get_many(make([3, 1, 3, 9])).column("id").to_pylist() == [3, 1]
    assert table.get_many(make([])).num_rows == 0


@pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)
def test_a_column_of_keys_deletes_them(
    db: st.Store, table: st.Table, make: Callable[[list[int]], object]
) -> None:
    assert table.delete(make([3, 1, 3, 9])).rows == len({3, 1})
    with db.transaction() as tx:
        tx["t"].delete(make([0, 0]))
    assert sorted(table.to_arrow(["id"]).column("id").to_pylist()) == [2, 4]


@pytest.mark.parametrize("make", [pd.Series, pd.Index, pa.array, np.array, pl.Series])
def test_columns_of_times_keep_their_nanoseconds(
    db: st.Store, make: Callable[[np.ndarray], object]
) -> None:
    table = db.create_table("m", {"at": "timestamp[ns]"}, primary_key="at")
    table.insert(pa.table({"at": MOMENTS}))
    assert table.get_many(make(MOMENTS[:1])).column("at").to_numpy().tolist() == [
        MOMENTS[0].astype(int)
    ]
    assert table.delete(make(MOMENTS)).rows == len(MOMENTS)
    assert table.count() == 0


@pytest.mark.parametrize(
    "keys", [pa.array(["1"]), pd.Series([None], dtype=object), np.array([[1]]), pa.array([None, 1])]
)
def test_a_column_of_another_type_or_with_a_null_is_refused(table: st.Table, keys: object) -> None:
    with pytest.raises(st.SchemaMismatchError, match="'id'"):
        table.get_many(keys)
    with pytest.raises(st.SchemaMismatchError, match="'id'"):
        table.delete(keys)
    assert table.count() == 5


def test_an_array_of_no_dimension_is_one_key(table: st.Table) -> None:
    assert table.get_many(np.array(3)).column("id").to_pylist() == [3]
    assert table.delete(np.array(3)).rows == 1


def test_one_column_is_no_key_of_two(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s") as db:
        table = db.create_table("t", {"a": "int64", "b": "int64"}, primary_key=["a", "b"])
        table.insert({"a": 1, "b": 2})
        with pytest.raises(st.SchemaMismatchError, match=r"\['a', 'b'\]; got one column of int64"):
            table.delete(pa.array([1]))
        with pytest.raises(st.SchemaMismatchError):
            table.delete(np.array([1, 2]))
        assert table.get_many((1, 2)).num_rows == 1


@pytest.mark.parametrize("rows", [pa.array([1]), pd.Series([1]), pl.Series("id", [1])])
def test_a_column_of_values_is_no_rows(table: st.Table, rows: object) -> None:
    for write in (table.insert, table.upsert):
        with pytest.raises(st.RequestError, match=r"columns with names|a row must be a dict"):
            write(rows)
    assert table.count() == 5


def test_a_null_in_the_place_of_a_row_is_refused(table: st.Table) -> None:
    with pytest.raises(st.RequestError, match="row 1 of the rows is null"):
        table.upsert(pa.array([{"id": 7, "v": "x"}, None]))
    assert table.count() == 5
