"""A table is created from what people write: names of types, types of Python, columns of lists."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siltstone as st
from tests.server.stores import DOORS, behind


@pytest.fixture(params=DOORS)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[st.Store]:
    with behind(request.param, tmp_path / "shop") as found:
        yield found


TYPES: list[tuple[Any, pa.DataType]] = [
    (int, pa.int64()),
    (float, pa.float64()),
    (str, pa.string()),
    (bytes, pa.binary()),
    (bool, pa.bool_()),
    (dt.datetime, pa.timestamp("us")),
    (dt.date, pa.date32()),
    (dt.time, pa.time64("us")),
    (dt.timedelta, pa.duration("us")),
    (uuid.UUID, pa.uuid()),
    (list[str], pa.list_(pa.string())),
    (list[list[int]], pa.list_(pa.list_(pa.int64()))),
    (int | None, pa.int64()),
    (Optional[list[int]], pa.list_(pa.int64())),  # noqa: UP045 - as people write it
    ("integer", pa.int64()),
    ("BIGINT", pa.int64()),
    ("smallint", pa.int16()),
    ("varchar", pa.string()),
    ("varchar(20)", pa.string()),
    ("double precision", pa.float64()),
    ("datetime", pa.timestamp("us")),
    ("timestamptz", pa.timestamp("us", "UTC")),
    ("numeric(10, 2)", pa.decimal128(10, 2)),
    ("list<string>", pa.list_(pa.string())),
    ("list<item: list<integer>>", pa.list_(pa.list_(pa.int64()))),
    ("large_list<int8>", pa.large_list(pa.int8())),
    ("Int64", pa.int64()),
    (" string ", pa.string()),
    ("timestamp[us, tz=Europe/Berlin]", pa.timestamp("us", "Europe/Berlin")),
]


@pytest.mark.parametrize(("kind", "made"), TYPES, ids=[str(kind) for kind, _ in TYPES])
def test_a_column_has_the_type_that_is_meant(db: st.Store, kind: Any, made: pa.DataType) -> None:
    table = db.create_table("t", {"id": int, "v": kind})
    assert table.schema.field("v").type == made
    table.add_column("w", kind)
    assert table.schema.field("w").type == made


def test_a_column_may_take_no_null(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64 not null", "v": "VARCHAR(9) NOT NULL"}, "id")
    assert not table.schema.field("v").nullable
    with pytest.raises(st.SchemaMismatchError):
        table.insert({"id": 1, "v": None})
    with pytest.raises(st.RequestError, match="not null"):
        table.add_column("w", "int64 not null")
    assert table.schema.names == ["id", "v"]


BAD_TYPES: list[tuple[Any, str]] = [
    (Decimal, "digits"),
    (dict, "got dict"),
    (5, "of type int"),
    ([1, 2], "data="),
    (None, "of type NoneType"),
    ("integre", "unknown type"),
    ("list<>", "unknown type"),
    ("list<" * 40 + "int" + ">" * 40, "nested"),
    ("not null", "unknown type"),
    (int | str, "got"),
]


@pytest.mark.parametrize(("kind", "words"), BAD_TYPES, ids=[str(k)[:20] for k, _ in BAD_TYPES])
def test_what_is_no_type_is_refused(db: st.Store, kind: Any, words: str) -> None:
    with pytest.raises(st.RequestError, match=words):
        db.create_table("t", {"id": "int64", "v": kind})
    assert db.tables() == []


SECRET = "secret-of-a-row"
FRAMES: list[Any] = [
    pd.DataFrame({"id": [SECRET]}),
    pl.DataFrame({"id": [SECRET]}),
    pa.table({"id": [SECRET]}),
    pa.table({"id": [SECRET]}).to_reader(),
    [{"id": SECRET}],
    {"id": [SECRET, SECRET]},
    {"id": np.array([1, 2])},
]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda each: type(each).__name__)
def test_rows_in_the_place_of_a_schema_get_one_sentence(db: st.Store, frame: Any) -> None:
    with pytest.raises(st.RequestError) as caught:
        db.create_table("t", frame, "id")
    text = str(caught.value)
    assert "the second argument is the schema; give rows as data=" in text
    assert SECRET not in text
    assert "\n" not in text
    assert db.tables() == []


LISTS: list[Any] = [list, tuple, np.array, pa.array, pd.Series, pl.Series]


@pytest.mark.parametrize("make", LISTS)
@pytest.mark.parametrize("schema", [None, {"id": "int64", "n": "int64"}])
def test_a_dict_of_equally_long_lists_is_columns(db: st.Store, make: Any, schema: Any) -> None:
    data = {"id": make([1, 2]), "n": make([3, 4])}
    table = db.create_table("t", schema, "id", data=data)
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "n": 3}, {"id": 2, "n": 4}]


def test_a_dict_of_other_values_is_one_row(db: st.Store) -> None:
    db.create_table("mixed", data={"id": 1, "v": [1, 2]})
    assert db["mixed"].to_arrow().to_pylist() == [{"id": 1, "v": [1, 2]}]
    db.create_table("row", data=[{"v": [1, 2]}])
    assert db["row"].to_arrow().to_pylist() == [{"v": [1, 2]}]
    db.create_table("typed", {"v": "list<int64>"}, data={"v": [1, 2]})
    assert db["typed"].to_arrow().to_pylist() == [{"v": [1, 2]}]
    texts = {"id": np.str_("abc"), "v": np.float64(2.0)}
    db.create_table("scalars", {"id": "string", "v": "float64"}, "id", data=texts)
    assert db["scalars"].to_arrow().to_pylist() == [{"id": "abc", "v": 2.0}]


AS_ROWS: list[tuple[dict[str, Any], dict[str, list[Any]]]] = [
    ({"id": "uint64"}, {"id": [1, 2**64 - 1]}),
    ({"id": int, "v": "decimal(5, 1)"}, {"id": [0, 1], "v": [1, 2]}),
    ({"id": int, "v": "uuid"}, {"id": [0], "v": [str(uuid.UUID(int=1))]}),
    ({"v": "list<int64>"}, {"v": [[1], [2]]}),
    ({"v": "list<list<int64>>"}, {"v": [[[1]], [[2]]]}),
    ({"v": "list<int64>"}, {"v": []}),
    ({"v": pa.struct([("x", pa.int64())])}, {"v": [{"x": 1}, {"x": 2}]}),
    ({"v": pa.map_(pa.string(), pa.int64())}, {"v": [[("a", 1)], [("b", 2)]]}),
]


@pytest.mark.parametrize(("schema", "data"), AS_ROWS)
def test_columns_beside_a_schema_are_what_the_same_rows_are(
    db: st.Store, schema: dict[str, Any], data: dict[str, list[Any]]
) -> None:
    rows = [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    db.create_table("columns", schema, data=data)
    db.create_table("rows", schema, data=rows)
    assert db["columns"].to_arrow().equals(db["rows"].to_arrow())
    assert db["columns"].count() == len(rows)


def test_columns_of_several_lengths_are_refused(db: st.Store) -> None:
    with pytest.raises(st.RequestError, match=r"'id' has 2 values, 'n' has 1 values"):
        db.create_table("t", data={"id": [1, 2], "n": [3]})
    assert db.tables() == []
