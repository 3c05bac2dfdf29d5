"""Typed arguments: rows, keys, schemas as people write them; pyright reads it, as `typed_calls`.

Wrong ones are refused, and no result is of an unknown type.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=error, reportMissingTypeStubs=false
# pyright: reportUnknownVariableType=error, reportUnknownArgumentType=error
# pyright: reportUnknownMemberType=error, reportUnknownLambdaType=error

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from typing import Any, assert_type

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import siltstone as st
from siltstone.given import Key, Rows, SchemaLike


def creates(db: st.Store, schema: pa.Schema, frame: pl.DataFrame) -> None:
    db.create_table("a", schema, "id")
    db.create_table("b", {"id": "int64", "at": "datetime"}, ["id"])
    db.create_table("c", {"id": int, "at": dt.datetime, "x": float, "tags": list[str]})
    db.create_table("d", {"id": pa.int64(), "n": int | None})
    db.create_table("e", data={"id": [1, 2]})
    db.create_table("f", data=[{"id": 1}], exist_ok=True)
    db.create_table("g", data=frame)
    db.create_table("h", frame)  # pyright: ignore[reportArgumentType]
    db.create_table("i", {"id": 5})  # pyright: ignore[reportArgumentType]
    db.create_table("j", data=5)  # pyright: ignore[reportArgumentType]
    with db.transaction() as tx:
        tx.create_table("k", {"id": int}).add_column("n", int)
        tx["k"].add_column("m", "varchar")
        tx["k"].add_column("m", 5)  # pyright: ignore[reportArgumentType]


def dicts() -> Iterator[dict[str, int]]:
    yield {"id": 1}


def writes(table: st.Table, arrow: pa.Table, batch: pa.RecordBatch) -> list[int | None]:
    frames: list[Rows] = [pl.DataFrame({"id": [1]}), pd.DataFrame({"id": [1]})]
    ints: dict[str, int] = {"id": 1}
    receipt = table.upsert(ints)
    table.upsert([ints, ints])
    table.insert(dicts())
    table.insert(arrow)
    table.append(batch)
    table.overwrite(arrow.to_reader())
    table.update_many(frames[0])
    table.upsert(pl.DataFrame({"id": [1]}), missing="keep")
    table.upsert(duckdb.sql("select 1 as id"))
    table.upsert(5)  # pyright: ignore[reportArgumentType]
    table.insert("id")  # pyright: ignore[reportArgumentType]
    table.append([1, 2])  # pyright: ignore[reportArgumentType]
    return [receipt.rows, table.update(7, n=5).rows]


def keys(table: st.Table, tx: st.Transaction) -> tuple[int | None, dict[str, Any] | None]:
    several: list[Key] = [1, "a", b"a", dt.datetime.now().astimezone(), uuid.uuid4(), ("eu", 1)]
    table.get_many(several)
    table.get_many(range(3))
    table.get_many(np.array([1, 2]))
    table.get_many(pl.Series([1]))
    table.get_many(pa.array([1]))
    table.delete({1, 2})
    table.delete({"region": "eu", "id": 1})
    table.delete(np.int64(3))
    table.get(1.5)  # pyright: ignore[reportArgumentType]
    table.get([1])  # pyright: ignore[reportArgumentType]
    table.update(None, n=5)  # pyright: ignore[reportArgumentType]
    table.delete([1.5])  # pyright: ignore[reportArgumentType]
    return tx["t"].delete(["a"]), table.get(("eu", 1))


def results(db: st.Store, table: st.Table) -> list[object]:
    found = db.sql("select 1")
    read = table.get(1)
    ran = db.run(lambda tx: tx["a"].get(1))
    past = db.snapshot()["a"].to_arrow()
    table.search("river", vector=np.zeros(3), k=5)
    table.search([[1.0, 2.0], [3.0, 4.0]])
    table.search(pl.Series([1.0]))
    table.search(7)  # pyright: ignore[reportArgumentType]
    assert_type(found.to_polars(), pl.DataFrame)
    assert_type(table.to_polars(), pl.DataFrame)
    ends = [table.scan(), table.search([1.0]), table.indexes(), table.dataset(), past]
    frames = [found.arrow(), found.df(), found.pl(), table.to_pandas(), table.to_polars()]
    return [read, ran, found.fetchall(), db.changes(), db.status(), db.log(), *ends, *frames]


def wrapper(db: st.Store, schema: SchemaLike, rows: Rows) -> st.Table:
    return db.create_table("t", schema, data=rows)
