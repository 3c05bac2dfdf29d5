"""A filter that Spark pushes down answers as Spark itself would: nulls, NaN and -0.0 included."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql import functions as fn
from pyspark.sql.types import DataType

import siltstone as st
from siltstone.spark.context.schemas import arrow_schema, as_schema, to_spark
from siltstone.spark.reads.filters import LIST_MAX, pushed
from tests.crash.moments import IS_LONG

NAN, INF = float("nan"), float("inf")
DAY, MOMENT = dt.date, dt.datetime
FLOATS = [NAN, INF, -INF, 0.0, -0.0, 0.1, -1.5, 3.0, 1e-30, 16777217.0]
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "ä",
    "a%",
    "a_b",
    "%",
    "_",
    "\\",
    "a\\%",
    "it's",
    "a\nb",
    "🦆",
    "\uffff",
]
MOMENTS = [
    MOMENT(1, 1, 1),
    MOMENT(1969, 12, 31, 23, 59, 59, 999999),
    MOMENT(2020, 2, 29, 1, 2, 3),
    MOMENT(2026, 11, 20, 10, 0, 0, 1000),
    MOMENT(9999, 12, 31),
]
SECONDS = [each.replace(microsecond=0) for each in MOMENTS]
MILLIS = [each.replace(microsecond=each.microsecond // 1000 * 1000) for each in MOMENTS]
VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "flag": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "i32": (pa.int32(), [-(2**31), -1, 0, 7, 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1]),
    "u8": (pa.uint8(), [0, 1, 255]),
    "u64": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "f16": (pa.float16(), [NAN, INF, 0.0, -0.0, 1.5]),
    "f32": (pa.float32(), FLOATS),
    "f64": (pa.float64(), [*FLOATS, 5e-324, 1.7976931348623157e308]),
    "text": (pa.string(), TEXTS),
    "long text": (pa.large_string(), TEXTS),
    "bytes": (pa.binary(), [b"", b"a", b"\0"]),
    "day": (pa.date32(), [DAY(1, 1, 1), DAY(1969, 12, 31), DAY(2020, 2, 29), DAY(9999, 12, 31)]),
    "ts_us": (pa.timestamp("us"), MOMENTS),
    "ts_ms": (pa.timestamp("ms"), MILLIS),
    "ts_s": (pa.timestamp("s"), SECONDS),
    "ts_zone": (pa.timestamp("us", "Europe/Berlin"), [m.replace(tzinfo=dt.UTC) for m in MOMENTS]),
    "money": (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.00"), Decimal("1.10")]),
}
ORDERED = (ds.EqualTo, ds.GreaterThan, ds.GreaterThanOrEqual, ds.LessThan, ds.LessThanOrEqual)
TEXTUAL = (ds.StringStartsWith, ds.StringEndsWith, ds.StringContains)
PREDICATES = 300 if IS_LONG else 150


def rows() -> pa.Table:
    """Every value of every column, and nulls, in rows of mixed company."""
    count = 2 * max(len(values) for _, values in VALUES.values())
    columns: dict[str, pa.Array] = {"id": pa.array(range(count), pa.int64())}
    for seed, (name, (kind, values)) in enumerate(VALUES.items()):
        cells = [(values * count)[n] if n % 7 else None for n in range(count)]
        random.Random(seed).shuffle(cells)
        columns[name] = pa.array(
            [None if c is None else np.float16(c) for c in cells] if name == "f16" else cells, kind
        )
    return pa.table(columns)


def constant(name: str, chance: random.Random) -> object:
    """A value that Spark could compare the column with: of the column's type in Spark."""
    value = chance.choice(VALUES[name][1])
    if name in {"f16", "f32"}:
        return float(np.float32(value))  # type: ignore[arg-type]
    return Decimal(value) if name == "u64" else value  # type: ignore[arg-type]


def predicate(chance: random.Random) -> ds.Filter:
    name = chance.choice(list(VALUES))
    at = (name,)
    kind = chance.randrange(10)
    found: ds.Filter
    if kind == 0:
        found = chance.choice((ds.IsNull, ds.IsNotNull))(at)
    elif kind <= 2:
        sizes = (1, 3, 12)  # with more than ten Spark evaluates by a set
        members = [constant(name, chance) for _ in range(chance.choice(sizes))]
        found = ds.In(at, tuple(members + [None] * chance.randrange(2)))
    elif kind == 3:
        found = ds.EqualNullSafe(at, constant(name, chance) if chance.randrange(5) else None)
    elif kind == 4:
        text = chance.choice(("text", "long text"))
        found = chance.choice(TEXTUAL)((text,), chance.choice(TEXTS))
    else:
        found = chance.choice(ORDERED)(at, constant(name, chance))
    return ds.Not(found) if chance.randrange(2) else found


def as_column(each: ds.Filter, frame: DataFrame) -> Column:
    """The condition that Spark would push as `each`."""
    if isinstance(each, ds.Not):
        return ~as_column(each.child, frame)
    name = each.attribute[0]  # type: ignore[attr-defined]
    column, kind = fn.col(f"`{name}`"), frame.schema[name].dataType
    if isinstance(each, ds.IsNull | ds.IsNotNull):
        return column.isNull() if isinstance(each, ds.IsNull) else column.isNotNull()
    if isinstance(each, ds.In):
        return column.isin([literal(value, kind) for value in each.value])
    value = literal(each.value, kind)  # type: ignore[attr-defined]
    return {
        ds.EqualTo: lambda: column == value,
        ds.EqualNullSafe: lambda: column.eqNullSafe(value),
        ds.GreaterThan: lambda: column > value,
        ds.GreaterThanOrEqual: lambda: column >= value,
        ds.LessThan: lambda: column < value,
        ds.LessThanOrEqual: lambda: column <= value,
        ds.StringStartsWith: lambda: column.startswith(value),
        ds.StringEndsWith: lambda: column.endswith(value),
        ds.StringContains: lambda: column.contains(value),
    }[type(each)]()


def literal(value: object, kind: DataType) -> Column:
    # As text: years below 1000 do not survive the way through Java's own dates.
    text = value.isoformat() if isinstance(value, dt.date) else value
    return fn.lit(text).cast(kind)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Table]:
    with st.connect(tmp_path_factory.mktemp("filters") / "store", background=False) as db:
        given = rows()
        table = db.create_table("t", given.schema, primary_key="id")
        half = given.num_rows // 2
        table.upsert(given.slice(0, half))
        db.checkpoint()
        db.merge()
        table.upsert(given.slice(half))
        yield table


def plain_frame(spark: SparkSession, table: st.Table) -> DataFrame:
    shown = to_spark(table.schema)
    batches = [as_schema(batch, arrow_schema(shown)) for batch in table.scan()]
    return spark.createDataFrame(pa.Table.from_batches(batches))


def test_every_pushed_filter_answers_as_spark_does(spark: SparkSession, table: st.Table) -> None:
    frame = plain_frame(spark, table).cache()
    chance = random.Random(20261120)
    wanted = [predicate(chance) for _ in range(PREDICATES)]
    taken = [(each, text) for each in wanted if (text := pushed(each, table.schema)) is not None]
    assert len(taken) > PREDICATES * 2 // 3
    for start in range(0, len(taken), 50):
        part = taken[start : start + 50]
        answers = frame.select(
            "id", *(as_column(each, frame).alias(f"p{n}") for n, (each, _) in enumerate(part))
        ).toArrow()
        for n, (each, text) in enumerate(part):
            there = sorted(answers.filter(is_true(answers, f"p{n}"))["id"].to_pylist())
            here = sorted(table.to_arrow(columns=["id"], filter=text)["id"].to_pylist())
            assert here == there, f"{each} as {text}"


def is_true(answers: pa.Table, name: str) -> pa.ChunkedArray:
    return answers[name].fill_null(False)


CONDITIONS = [
    "f64 >= double('NaN') and i64 > 0",
    "`long text` like 'a\\\\%%' or i8 is null",
    "text like '%b' and not (day <=> date'2020-02-29') and f32 in (0.1f, float('NaN'), null)",
    "ts_zone < timestamp'2026-01-01 00:00:00' and ts_ms is not null and money >= 0",
    "i32 in (1,2,3,4,5,6,7,8,9,10,11,12,-1) or u64 = 18446744073709551615",
]


def read(spark: SparkSession, table: st.Table) -> DataFrameReader:
    return spark.read.format("siltstone").options(uri=str(table._core.root), table="t")


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def test_spark_pushes_and_gets_the_same_rows(spark: SparkSession, table: st.Table) -> None:
    frame = plain_frame(spark, table).cache()
    for condition in CONDITIONS:
        once = read(spark, table).option("pushdown", "single_use").load()
        assert ids(once.where(condition)) == ids(frame.where(condition)), condition


def test_a_filter_that_is_taken_leaves_the_plan_of_spark(
    spark: SparkSession, table: st.Table
) -> None:
    once = read(spark, table).option("pushdown", "single_use").load()
    plan = once.where("i64 > 3 and f64 = double('NaN')")._jdf.queryExecution().executedPlan()
    assert "Filter (" not in plan.toString()


def test_a_frame_is_right_however_often_and_wherever_it_is_filtered(
    spark: SparkSession, table: st.Table
) -> None:
    frame = read(spark, table).option("columns", "id, i8").load()
    few, rest = frame.where("id < 3"), frame.where("id >= 3 or i8 is null")
    total = table.count()
    assert ids(few) == [0, 1, 2]
    assert ids(rest) == sorted(set(range(3, total)) | set(ids(frame.where("i8 is null"))))
    assert ids(few.union(frame)) == sorted([0, 1, 2, *range(total)])
    assert frame.count() == total


def test_the_filter_option_is_answered_by_the_store(spark: SparkSession, table: st.Table) -> None:
    text = "i64 > 0 AND text LIKE 'a%' -- an index would help"
    frame = read(spark, table).option("filter", text).load()
    wanted = sorted(table.to_arrow(columns=["id"], filter=text)["id"].to_pylist())
    assert ids(frame) == wanted
    assert ids(frame.where("id > 5").union(frame)) == sorted(
        [*wanted, *(n for n in wanted if n > 5)]
    )


def test_what_the_store_may_see_otherwise_is_left_to_spark(table: st.Table) -> None:
    left: list[ds.Filter] = [
        ds.In(("f64",), (0.0, 1.0)),
        ds.EqualTo(("f64",), INF),
        ds.EqualTo(("bytes",), b"a"),
        ds.EqualTo(("point", "x"), 1),
        ds.EqualTo(("nothing",), 1),
        ds.EqualTo(("text",), "a\0b"),
        ds.In(("i64",), tuple(range(LIST_MAX + 1))),
        ds.Not(ds.EqualTo(("bytes",), b"a")),
    ]
    assert [pushed(each, table.schema) for each in left] == [None] * len(left)
