"""Polars frames go in as rows and keys, and come out of tables, snapshots and queries."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import siltstone as st
from siltstone.api.store import Store
from tests.engine.seams import fake_env, open_store

SCHEMA = {
    "id": "int64",
    "name": "string",
    "raw": "binary",
    "score": "float32",
    "day": "date",
    "at": "timestamp",
    "tags": pa.list_(pa.string()),
}
FRAME = pl.DataFrame(
    {
        "id": [1, 2, 3],
        "name": ["Ada", None, "Grace, whose name is longer than a view holds inline"],
        "raw": [b"\x00", b"", None],
        "score": [0.5, float("inf"), None],
        "day": [dt.date(1815, 12, 10), None, dt.date(1906, 12, 9)],
        "at": [dt.datetime(2026, 1, 2, 3, 4, 5, 6), None, None],  # noqa: DTZ001
        "tags": [["a", None], [], None],
    },
    schema_overrides={"score": pl.Float32},
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "db", fake_env()) as store:
        store.create_table("t", SCHEMA, primary_key="id")
        store.create_table("log", SCHEMA)
        yield store


def test_a_frame_that_was_written_comes_back_the_same(db: Store) -> None:
    t, log = db["t"], db["log"]
    assert t.upsert(FRAME).rows == 3
    assert log.append(FRAME).rows == 3
    for _ in range(2):
        for table in (t, log, db.snapshot()["t"]):
            found = table.to_polars().sort("id")
            assert_frame_equal(found.cast(FRAME.schema), FRAME)
        db.checkpoint()
        db.merge()


@pytest.mark.parametrize("rows", [3, 600])
def test_every_way_of_writing_takes_a_frame(db: Store, rows: int) -> None:
    frame = pl.DataFrame({"id": range(rows), "name": [f"n{n}" for n in range(rows)]})
    t, log = db["t"], db["log"]
    t.insert(frame)
    with pytest.raises(st.DuplicateKeyError):
        t.insert(frame)
    log.overwrite(frame)
    with db.transaction() as tx:
        tx["t"].upsert(frame.with_columns(name=pl.lit("new")), "null")
        tx["log"].append(frame)
    assert t.count("name = 'new'") == rows
    assert log.count() == 2 * rows
    assert t.get_many(frame.select("id").head(2)).num_rows == 2
    assert t.delete(frame.select("id")).rows == rows
    assert t.count() == 0


def test_columns_and_filters_come_before_the_frame(db: Store) -> None:
    db["t"].upsert(FRAME)
    assert db["t"].to_polars(["name"], "id = 1").rows() == [("Ada",)]
    assert db.sql("select max(id) as m from t").pl().rows() == [(3,)]
    lazy = pl.scan_pyarrow_dataset(db["t"].dataset())
    assert lazy.filter(pl.col("id") > 2).select("id").collect().rows() == [(3,)]


def test_a_frame_that_does_not_fit_is_refused(db: Store) -> None:
    for frame in (
        pl.DataFrame({"id": ["1"]}),
        pl.DataFrame({"id": [1], "zz": [1]}),
        pl.DataFrame({"id": [1], "score": [1e300]}),
        pl.DataFrame({"id": [None]}, schema={"id": pl.Int64}),
    ):
        with pytest.raises(st.SchemaMismatchError):
            db["t"].upsert(frame, "null")
    assert db["t"].count() == 0


def test_a_categorical_column_is_text(db: Store) -> None:
    frame = pl.DataFrame(
        {"id": [1, 2], "name": ["x", "x"]}, schema_overrides={"name": pl.Categorical}
    )
    db["t"].upsert(frame, "null")
    assert db["t"].to_polars(["name"])["name"].to_list() == ["x", "x"]


def test_without_polars_a_frame_is_refused_and_says_what_is_missing(
    db: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    result = db.sql("select 1 as one")
    for ask in (db["t"].to_polars, db.snapshot()["t"].to_polars, result.pl):
        with pytest.raises(st.UnavailableError, match="polars"):
            ask()


class Exported:
    """Rows of somebody whose library nobody knows: a stream, and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_anything_with_an_arrow_stream_is_rows(db: Store) -> None:
    names = pa.chunked_array([["a"], [], ["b", "c"]], pa.string_view())
    chunks = pa.table({"id": [1, 2, 3], "name": names})
    db["t"].upsert(Exported(chunks), "null")
    db["log"].append(Exported(chunks))
    assert db["t"].to_arrow(["name"])["name"].to_pylist() == ["a", "b", "c"]
    assert db["log"].count() == 3
    assert db["t"].delete(Exported(chunks.select(["id"]))).rows == 3
