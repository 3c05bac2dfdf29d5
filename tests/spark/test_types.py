"""Spark reads and writes a column of every type that it has, and refuses the others by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import siltstone as st

DAY = dt.timedelta(days=1)
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "uid": (pa.uuid(), [UUID(int=0), UUID(int=(1 << 128) - 1)]),
    "code": (pa.binary(3), [b"\0\0\0", b"\xff\0\xff"]),
    "many": (pa.large_list(pa.int32()), [[], [None, -(1 << 31), (1 << 31) - 1]]),
    "pairs": (pa.map_(pa.string(), pa.int32()), [[], [("b", None), ("a", -1)]]),
    "days": (pa.map_(pa.int32(), pa.date64()), [[], [(1, dt.date(1, 1, 1))]]),
    "seconds": (pa.duration("s"), [dt.timedelta(0), -DAY * 100_000]),
    "nanos": (pa.duration("ns"), [dt.timedelta(0), dt.timedelta(microseconds=-1)]),
    "day": (pa.date64(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "sum": (pa.decimal256(38, 2), [Decimal("-0.01"), Decimal("1e35") + Decimal("0.25")]),
    "square": (pa.fixed_shape_tensor(pa.float32(), [2, 2]), [[0.0] * 4, [1.0, -2.5, 3.0, 4.0]]),
    "inside": (
        pa.struct([("code", pa.binary(2)), ("span", pa.duration("us"))]),
        [{"code": None, "span": None}, {"code": b"\0\xff", "span": -DAY}],
    ),
}
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), *((n, kind) for n, (kind, _) in TYPES.items())]
)
ROWS: list[dict[str, Any]] = [
    *({"id": at, **{n: values[at] for n, (_, values) in TYPES.items()}} for at in range(2)),
    {"id": 2, **dict.fromkeys(TYPES)},
]
EXPECTED = {row["id"]: row for row in ROWS}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with st.connect(tmp_path / "shop", background=False) as db:
        db.create_table("t", SCHEMA, "id").upsert(ROWS)
        db.create_table("copy", SCHEMA, "id")
        db.create_table("plain", SCHEMA.append(pa.field("doc", pa.json_()))).append(
            [{**ROWS[1], "doc": '{"a":1}'}]
        )
        db.create_table("wide", {"id": "int64", "sum": "decimal256(39, 0)"}, "id").insert({"id": 1})
    return tmp_path / "shop"


def frame(spark: SparkSession, path: Path, table: str) -> Any:
    return spark.read.format("siltstone").option("uri", str(path)).option("table", table).load()


def write(rows: Any, path: Path, table: str, op: str = "upsert", mode: str = "append") -> None:
    options = {"uri": str(path), "table": table, "op": op}
    rows.write.format("siltstone").mode(mode).options(**options).save()


def test_spark_shows_the_values_in_its_own_types(spark: SparkSession, path: Path) -> None:
    rows = {row["id"]: row.asDict(recursive=True) for row in frame(spark, path, "t").collect()}
    assert rows[2] == {"id": 2, **dict.fromkeys(TYPES)}
    for place in range(2):
        expected = EXPECTED[place] | {
            "uid": bytearray(EXPECTED[place]["uid"].bytes),
            "pairs": dict(EXPECTED[place]["pairs"]),
            "days": dict(EXPECTED[place]["days"]),
        }
        assert rows[place] == expected


def test_what_spark_read_it_writes_unchanged(spark: SparkSession, path: Path) -> None:
    write(frame(spark, path, "t").where("id >= 0"), path, "copy")
    with st.connect(path, background=False) as db:
        assert {row["id"]: row for row in db["copy"].to_arrow().to_pylist()} == EXPECTED
        assert db["copy"].schema.types == SCHEMA.types
    write(frame(spark, path, "plain"), path, "plain", "append")
    write(frame(spark, path, "plain"), path, "plain", "append", "overwrite")
    with st.connect(path, background=False) as db:
        assert db["plain"].to_arrow().to_pylist() == [{**ROWS[1], "doc": '{"a":1}'}] * 2
        assert db.verify(deep=True).is_sound


def test_spark_reads_and_writes_the_bytes_of_blobs(spark: SparkSession, path: Path) -> None:
    values = [b"x" * 70_000, None, b"", b"z"]
    with st.connect(path, background=False) as db:
        rows = [{"id": n, "b": value} for n, value in enumerate(values)]
        db.create_table("blobs", {"id": "int64", "b": "blob"}).append(rows)
    shown = frame(spark, path, "blobs").orderBy("id").collect()
    assert [row["b"] for row in shown] == values
    write(frame(spark, path, "blobs").selectExpr("id + 10 AS id", "b"), path, "blobs", "append")
    with st.connect(path, background=False) as db:
        found = db["blobs"].to_arrow().sort_by("id")
        assert found["b"].to_pylist() == values * 2
        assert db.verify(deep=True).is_sound


def test_a_type_that_spark_lacks_is_refused_by_name_and_can_be_left_out(
    spark: SparkSession, path: Path
) -> None:
    with pytest.raises(PySparkException, match=r"column 'sum' has type decimal256\(39, 0\)"):
        frame(spark, path, "wide").collect()
    with pytest.raises(PySparkException, match=r"column 'sum' has type decimal256\(39, 0\)"):
        write(spark.sql("SELECT 2L AS id, 1BD AS sum"), path, "wide")
    read = spark.read.format("siltstone").options(uri=str(path), table="wide", columns="id")
    assert [row["id"] for row in read.load().collect()] == [1]


@pytest.mark.parametrize(
    ("value", "name", "why"),
    [
        ("unhex('00')", "uid", "a value of binary does not fit extension"),
        ("unhex('00')", "code", "a value of binary does not fit fixed_size_binary"),
        ("array(1F)", "square", "does not fit extension"),
        ("INTERVAL '0.5' SECOND", "seconds", "a value of duration"),
        ("map('a', 'b')", "pairs", "the rows have map<string,string>"),
        ("1L", "seconds", "the rows have bigint"),
    ],
)
def test_a_value_that_the_column_cannot_hold_is_refused_and_nothing_written(
    spark: SparkSession, path: Path, value: str, name: str, why: str
) -> None:
    rows = spark.sql(f"SELECT 9L AS id, {value} AS {name}")
    with pytest.raises(PySparkException, match=f"column '{name}'.*{why}"):
        write(rows, path, "copy", "insert")
    with st.connect(path, background=False) as db:
        assert db["copy"].count() == 0
