"""A value that would become another one, or lose its type, is refused by name, and nothing is kept.

Objects of Python in a frame, extension types that nobody knows, times with and without a zone side
by side, tensors of another shape.
"""

# ruff: noqa: DTZ001 (moments without a zone are what some of these are about)

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siltstone as st
from siltstone.local.merge_insert import Merge
from tests.server.house import House, house_at

NAME = b"ARROW:extension:name"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house_at(tmp_path_factory.mktemp("lost") / "shop") as made:
        yield made


@pytest.fixture
def db(house: House) -> Iterator[st.Store]:
    yield house.owner
    for table in house.owner.tables():
        house.owner.drop_table(table)


class Thing:
    """An object of a caller's class."""


def marked(kind: pa.DataType, name: bytes) -> pa.Field:
    """Return a field as pyarrow imports a type that it does not know."""
    return pa.field("v", kind, metadata={NAME: name})


def table_of(field: pa.Field, values: list[object]) -> pa.Table:
    ids = pa.field("id", pa.int64())
    columns: list[Any] = [pa.array(range(len(values))), pa.array(values, field.type)]
    return pa.Table.from_arrays(columns, schema=pa.schema([ids, field]))


def extended(kind: Any, values: list[object]) -> pa.Table:
    column = pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.table({"id": range(len(values)), "v": column})


INNER = marked(pa.int64(), b"geo.point")
UNKNOWN: dict[str, tuple[Any, pa.DataType, str]] = {
    "objects of Polars": (
        pl.DataFrame({"id": [0], "v": [Thing()]}, schema_overrides={"v": pl.Object}),
        pa.binary(8),
        "Object",
    ),
    "a type that pyarrow does not know": (
        table_of(marked(pa.int64(), b"geo.point"), [1]),
        pa.int64(),
        "geo.point",
    ),
    "such a type in a list": (
        table_of(pa.field("v", pa.list_(INNER)), [[1]]),
        pa.list_(pa.int64()),
        "geo.point",
    ),
    "such a type in a struct in a map": (
        table_of(pa.field("v", pa.map_(pa.string(), pa.struct([INNER]))), [[("a", {"v": 1})]]),
        pa.map_(pa.string(), pa.struct([("v", pa.int64())])),
        "geo.point",
    ),
    "periods of pandas": (
        pd.DataFrame({"id": [0], "v": pd.period_range("2020-01", periods=1, freq="M")}),
        pa.int64(),
        "pandas.period",
    ),
    "an opaque type": (
        extended(pa.opaque(pa.int8(), "money", "postgres"), [1]),
        pa.int8(),
        "arrow.opaque",
    ),
    "booleans of eight bits": (extended(pa.bool8(), [1]), pa.int8(), "arrow.bool8"),
    "a dictionary of such values": (
        pa.table(
            {
                "id": [0],
                "v": pa.DictionaryArray.from_arrays(
                    pa.array([0]), extended(pa.bool8(), [1])["v"].combine_chunks()
                ),
            }
        ),
        pa.int8(),
        "arrow.bool8",
    ),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_a_type_that_is_not_known_is_refused_by_name_at_every_door(
    house: House, db: st.Store, what: str
) -> None:
    given, lies_in, name = UNKNOWN[what]
    why = rf"'v'.*{name}"
    schema = pa.schema([("id", pa.int64()), ("v", lies_in)])
    db.create_table("t", schema, primary_key="id")
    db.create_table("p", schema)
    seq = db.seq
    is_sent = "dictionary" not in what  # Arrow itself writes no stream of it
    for store in (house.owner, house.socket, house.http) if is_sent else (house.owner,):
        for write in (store["t"].upsert, store["t"].insert, store["p"].append):
            with pytest.raises(st.RequestError, match=why):
                write(given)
        with pytest.raises(st.RequestError, match=why):
            store["p"].overwrite(given)
        with pytest.raises(st.RequestError, match=why):
            store.create_table("new", data=given)
        with pytest.raises(st.RequestError, match=why):
            store.create_table("new", schema, data=given)
    with pytest.raises(st.RequestError, match=why):
        db.stage("t").run(given)
    if isinstance(given, pa.Table):
        merge = Merge(("id",), True, True, False, None, 9)
        with db.transaction() as tx, pytest.raises(st.RequestError, match=why):
            tx.merge_insert("t", given, merge)
        for route in ("t/insert", "p/insert", "new/create") if is_sent else ():
            answer = house.rest.post(f"/v1/table/{route}", given)
            assert answer.status == 400, route
            assert name in answer.json["error"]
    assert db.seq == seq
    assert db.tables() == ["p", "t"]
    assert db["t"].count() == db["p"].count() == 0


@pytest.mark.parametrize("what", [each for each in UNKNOWN if "booleans" not in each])
def test_sql_does_not_read_such_a_frame(db: st.Store, what: str) -> None:
    if "dictionary" in what:
        return
    frame, _, name = UNKNOWN[what]
    with pytest.raises(st.RequestError, match=rf"'v'.*{name}"):
        db.sql("SELECT v FROM frame")
    assert len(frame) == 1


def test_sql_reads_the_extensions_that_duckdb_has(db: st.Store) -> None:
    bools = extended(pa.bool8(), [1, 0])  # noqa: F841 - the statement reads it
    assert db.sql("SELECT v FROM bools").fetchall() == [(True,), (False,)]


def test_a_schema_with_such_a_type_is_refused_by_name(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64"}, primary_key="id")
    for field in (INNER, pa.field("v", pa.list_(INNER))):
        with pytest.raises(st.RequestError, match=r"'v'.*geo\.point"):
            db.create_table("new", pa.schema([field]))
        with pytest.raises(st.RequestError, match=r"'v'.*geo\.point"):
            db.stage("t", schema=pa.schema([("id", pa.int64()), field]))
    with pytest.raises(st.RequestError, match=r"'v'.*geo\.point"):
        table.add_column("v", pa.list_(INNER))
    assert table.schema.names == ["id"]


def test_the_extensions_that_columns_have_are_taken_as_before(db: st.Store) -> None:
    ids = extended(pa.uuid(), [UUID(int=7).bytes])
    db.create_table("t", data=ids, primary_key="id")
    assert db["t"].get(0) == {"id": 0, "v": UUID(int=7)}
    words = pa.DictionaryArray.from_arrays(pa.array([0]), ids["v"].combine_chunks())
    db["t"].upsert(pa.table({"id": [1], "v": words}))
    assert db["t"].get(1) == {"id": 1, "v": UUID(int=7)}


def test_a_tensor_of_another_shape_or_order_is_refused(db: st.Store) -> None:
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3])
    db.create_table("t", pa.schema([("id", pa.int64()), ("v", kind)]), primary_key="id")
    for other in (
        pa.fixed_shape_tensor(pa.int32(), [3, 2]),
        pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0]),
    ):
        with pytest.raises(st.SchemaMismatchError, match=r"column 'v' is .*shape"):
            db["t"].upsert(extended(other, [[1, 2, 3, 4, 5, 6]]))
    db["t"].upsert(extended(pa.fixed_shape_tensor(pa.int16(), [2, 3]), [[1, 2, 3, 4, 5, 6]]))
    assert db["t"].count() == 1


# times of Python

NAIVE = dt.datetime(2026, 1, 1)
ZONED = dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))
MIXED: dict[str, list[object]] = {
    "values": [NAIVE, ZONED],
    "a list": [[NAIVE, ZONED]],
    "lists": [[ZONED], None, [NAIVE]],
    "structs": [{"at": NAIVE}, {"at": ZONED}],
    "lists of structs": [[{"at": NAIVE}, None], [{"at": ZONED, "x": 1}]],
    "structs of lists": [{"at": [ZONED]}, {"at": [NAIVE]}],
    "lists of lists": [[[ZONED]], [[NAIVE]]],
    "times of pandas": [[pd.Timestamp(NAIVE)], [pd.Timestamp(ZONED)]],
    "arrays of NumPy": [[ZONED], np.array(["2026-01-01"], "M8[us]")],
}


@pytest.mark.parametrize("where", MIXED)
def test_times_with_and_without_a_zone_have_no_one_type_at_any_depth(
    db: st.Store, where: str
) -> None:
    with pytest.raises(st.SchemaMismatchError, match="'v' have no common type; give a schema"):
        db.create_table("t", data=[{"v": value} for value in MIXED[where]])
    assert db.tables() == []


def test_times_of_one_kind_in_each_field_have_a_type(db: st.Store) -> None:
    rows = [{"v": {"here": NAIVE, "there": [ZONED]}}, {"v": {"here": None, "there": [ZONED]}}]
    db.create_table("t", data=rows)
    assert db["t"].to_arrow().to_pylist() == rows


# arrays of NumPy

STAMPS = np.array(["2026-01-01T00:00:00.123456789", "NaT"], "M8[ns]")
SPANS = np.array([1, "NaT"], "m8[ns]")


@pytest.mark.parametrize("with_schema", [True, False])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (STAMPS, pa.list_(pa.timestamp("ns"))),
        (SPANS, pa.list_(pa.duration("ns"))),
        (STAMPS.astype("M8[us]"), pa.list_(pa.timestamp("us"))),
        (STAMPS.astype("M8[s]"), pa.list_(pa.timestamp("s"))),
        (STAMPS.astype("M8[D]"), pa.list_(pa.date32())),
    ],
)
def test_a_list_may_be_an_array_of_times_of_any_unit(
    house: House, db: st.Store, value: Any, kind: Any, with_schema: bool
) -> None:
    if kind.value_type == pa.date32() and not with_schema:
        return  # Arrow itself finds no type for it
    schema = pa.schema([("v", kind)]) if with_schema else None
    for store in (house.owner, house.socket, house.http):
        store.create_table("t", schema, data=[{"v": value}, {"v": None}])
        found = db["t"].to_arrow()["v"]
        assert found.type == kind
        assert found.combine_chunks().flatten().equals(pa.array(value).cast(kind.value_type))
        db.drop_table("t")


def test_an_array_of_times_is_taken_inside_structs_lists_and_maps(db: st.Store) -> None:
    inner = pa.list_(pa.timestamp("ns"))
    kinds = [pa.struct([("x", inner)]), pa.list_(inner), pa.map_(pa.string(), inner)]
    schema = pa.schema([("id", pa.int64()), *((f"c{n}", kind) for n, kind in enumerate(kinds))])
    table = db.create_table("t", schema, primary_key="id")
    row = {"id": 1, "c0": {"x": STAMPS}, "c1": np.stack([STAMPS, STAMPS]), "c2": {"a": STAMPS}}
    table.upsert(row)
    stamps = pa.array(STAMPS).to_pylist()
    wanted = {"id": 1, "c0": {"x": stamps}, "c1": [stamps, stamps], "c2": [("a", stamps)]}
    assert table.get(1) == wanted


def test_an_array_that_does_not_fit_is_refused(db: st.Store) -> None:
    db.create_table("t", pa.schema([("v", pa.list_(pa.timestamp("us")))]))
    for value in (STAMPS, SPANS, np.array([1]), np.array("2026-01-01", "M8[us]")):
        with pytest.raises(st.SchemaMismatchError, match="column 'v' is"):
            db["t"].append({"v": value})
    assert db["t"].count() == 0


# DuckDB


def test_sql_refuses_a_frame_with_a_column_without_a_name(db: st.Store) -> None:
    for frame in (pa.table({"": [1], "x": [2]}), pl.DataFrame({"": [1], "x": [2]})):
        with pytest.raises(st.RequestError, match="a column of 'frame' has no name"):
            db.sql("SELECT x FROM frame")
        with pytest.raises(st.RequestError, match="a column name must be a non-empty string"):
            db.create_table("t", data=frame)


HALVES = pa.table(
    {
        "id": [1, 2, 3],
        "h": pa.array([1.5, None, float("nan")], pa.float16()),
        "list": pa.array([[1.5, None], [], None], pa.list_(pa.float16())),
        "in": pa.array([{"h": 0.5}, {"h": None}, None], pa.struct([("h", pa.float16())])),
        "vector": pa.array([[1, 2], None, [0.5, -0.0]], pa.list_(pa.float16(), 2)),
    }
)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM {} ORDER BY id",
        "SELECT id FROM {} WHERE id > 1 ORDER BY id",
        "SELECT id FROM {} WHERE h = 1.5",
        "SELECT id FROM {} WHERE h <= 'nan' AND in.h > 0 ORDER BY id",
        "SELECT sum(h), max(list[1]) FROM {} WHERE h < 'inf'",
        "SELECT a.id FROM {} a JOIN {} b ON a.h = b.h ORDER BY ALL",
    ],
)
def test_sql_reads_half_floats_as_floats(house: House, db: st.Store, statement: str) -> None:
    single = HALVES.cast(
        pa.schema(
            [
                ("id", pa.int64()),
                ("h", pa.float32()),
                ("list", pa.list_(pa.float32())),
                ("in", pa.struct([("h", pa.float32())])),
                ("vector", pa.list_(pa.float32(), 2)),
            ]
        )
    )
    halves = HALVES
    db.create_table("t", data=HALVES, primary_key="id")
    statement = statement.replace("in.h", '"in".h')
    wanted = repr(db.sql(statement.format("single", "single")).fetchall())
    assert single.num_rows == halves.num_rows
    assert repr(db.sql(statement.format("halves", "halves")).fetchall()) == wanted
    for store in (house.owner, house.socket, house.http):
        assert repr(store.sql(statement.format("t", "t")).fetchall()) == wanted
