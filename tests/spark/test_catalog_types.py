"""Through mapped memory and as a stream, each type has the values that the store has."""

from __future__ import annotations

import datetime as dt
import math
import struct
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import register
from tests.spark.daemons import daemons, memory_files
from tests.spark.test_types import ROWS, SCHEMA

UTC = dt.UTC
FLAT: dict[str, tuple[pa.DataType, list[Any]]] = {
    "yes": (pa.bool_(), [True, False, None, True]),
    "i8": (pa.int8(), [-128, 127, None, 0]),
    "i16": (pa.int16(), [-(1 << 15), (1 << 15) - 1, 0, None]),
    "i32": (pa.int32(), [-(1 << 31), None, (1 << 31) - 1, 0]),
    "i64": (pa.int64(), [None, -(1 << 63), (1 << 63) - 1, 0]),
    "u8": (pa.uint8(), [255, 0, None, 1]),
    "u32": (pa.uint32(), [(1 << 32) - 1, 0, None, 1]),
    "u64": (pa.uint64(), [(1 << 64) - 1, 0, None, 1]),
    "f16": (pa.float16(), [1.5, -0.25, None, 0.0]),
    "f32": (pa.float32(), [1.5, math.inf, None, -0.0]),
    "f64": (pa.float64(), [math.pi, -math.inf, None, 5e-324]),
    "d9": (pa.decimal128(9, 2), [Decimal("-1234567.89"), Decimal(0), None, Decimal("0.01")]),
    "d18": (pa.decimal128(18, 0), [Decimal(-(10**18) + 1), Decimal(10**18 - 1), None, Decimal(-1)]),
    "d19": (pa.decimal128(19, 3), [Decimal("-9999999999999999.999"), Decimal("0.001"), None, None]),
    "d38": (pa.decimal128(38, 10), [Decimal(10**27), Decimal(-(10**27)), None, Decimal("1e-10")]),
    "s": (pa.string(), ["", "ü€😀", None, "x" * 1000]),
    "ls": (pa.large_string(), ["", "a", None, "b"]),
    "b": (pa.binary(), [b"", b"\0\xff", None, b"z"]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(1582, 10, 10), None, dt.date(9999, 12, 31)]),
    "ts": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1500, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 1, 1, tzinfo=UTC), None, None],
    ),
    "ns": (
        pa.timestamp("ns"),
        [dt.datetime(1700, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 0, 1), None, None],  # noqa: DTZ001
    ),
    "t": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999999), None, dt.time(1)]),
    "span": (pa.duration("us"), [dt.timedelta(-1), dt.timedelta(microseconds=1), None, None]),
}
FLAT_SCHEMA = pa.schema([("n", pa.int64()), *((name, kind) for name, (kind, _) in FLAT.items())])
BIG_ROWS = 150_000


def flat_rows() -> list[dict[str, Any]]:
    """Rows enough that nulls lie at each bit of a byte."""
    return [
        {"n": n, **{name: values[n * n % 7 % 4] for name, (_, values) in FLAT.items()}}
        for n in range(61)
    ]


def _text(n: int) -> str | None:
    return None if n % 3 == 0 else f"{(n * 7919) % BIG_ROWS:06d} and {n}"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("types") / "shop"
    with st.connect(found, background=False) as db:
        db.create_table("flat", FLAT_SCHEMA).append(flat_rows())
        db.create_table("nested", SCHEMA, "id").upsert(ROWS)
        db.create_table("wide", {"id": "int64", "sum": "decimal256(39, 0)"}, "id")
        columns = {f"c{n}": "int32" for n in range(3000)}
        db.create_table("columns", columns).append([dict.fromkeys(columns, 7)] * 3)
        db.create_table("row", {"id": "int64", "s": "string"}).append(
            [{"id": n, "s": "abc"[n] * (9_000_000 if n == 1 else 3)} for n in range(3)]
        )
        numbers = range(BIG_ROWS)
        db.create_table("big", {"id": "int64", "s": "string", "x": "float64"}).append(
            pa.table(
                {
                    "id": pa.array(numbers),
                    "s": pa.array(map(_text, numbers)),
                    "x": pa.array([None if n % 5 == 0 else n / 2 for n in numbers]),
                }
            )
        )
        db.checkpoint()
        db["flat"].append([{**flat_rows()[1], "n": 100}])
    return found


@pytest.fixture(scope="module")
def shop(spark: SparkSession, path: Path) -> SparkSession:
    return register(spark.newSession(), stores={"shop": path})


def _python(spark: SparkSession, path: Path, table: str) -> Any:
    return spark.read.format("siltstone").option("uri", str(path)).option("table", table).load()


def _shown(value: object) -> object:
    """Return a value so that NaN equals NaN, and -0.0 not 0.0."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def _rows(frame: Any, key: str) -> list[list[object]]:
    return [[_shown(value) for value in row] for row in frame.orderBy(key).collect()]


def test_flat_columns_have_the_values_of_the_python_source(shop: SparkSession, path: Path) -> None:
    mapped, python = shop.table("shop.flat"), _python(shop, path, "flat")
    assert mapped.dtypes == python.dtypes
    assert _rows(mapped, "n") == _rows(python, "n")
    for name in FLAT:  # alone, so that it lies at the beginning of a slot, too
        assert _rows(mapped.select("n", name), "n") == _rows(python.select("n", name), "n")


def test_nested_columns_have_the_values_of_the_python_source(
    shop: SparkSession, path: Path
) -> None:
    stream, python = shop.table("shop.nested"), _python(shop, path, "nested")
    assert stream.dtypes == python.dtypes
    assert _rows(stream, "id") == _rows(python, "id")


def test_a_type_that_spark_lacks_is_refused_by_name(shop: SparkSession) -> None:
    with pytest.raises(AnalysisException, match=r"column 'sum' has type decimal256\(39, 0\)"):
        shop.table("shop.wide")


def test_many_batches_have_all_rows_once(shop: SparkSession) -> None:
    found = shop.sql("SELECT count(*), count(s), sum(id), sum(x) FROM shop.big WHERE id >= 0")
    shown = [n for n in range(BIG_ROWS) if n % 5]
    assert tuple(found.collect()[0]) == (
        BIG_ROWS,
        BIG_ROWS - BIG_ROWS // 3,
        sum(range(BIG_ROWS)),
        sum(shown) / 2,
    )


def test_a_text_outlives_the_slot_that_it_lay_in(shop: SparkSession) -> None:
    texts = [text for n in range(BIG_ROWS) if (text := _text(n)) is not None]
    found = shop.sql("SELECT max(s), min(s), max_by(s, id), first(s, true) FROM shop.big")
    biggest, smallest, last, first = found.collect()[0]
    assert (biggest, smallest, last) == (max(texts), min(texts), texts[-1])
    assert first in set(texts)
    grouped = shop.sql("SELECT id % 10 g, max(s) s FROM shop.big GROUP BY 1").collect()
    for row in grouped:
        group = [t for n in range(row.g, BIG_ROWS, 10) if (t := _text(n)) is not None]
        assert row.s == max(group)


def test_a_row_larger_than_a_slot_is_read(shop: SparkSession) -> None:
    found = shop.sql("SELECT id, length(s) l, left(s, 1) c FROM shop.row ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(0, 3, "a"), (1, 9_000_000, "b"), (2, 3, "c")]


def test_a_table_of_thousands_of_columns_is_read(shop: SparkSession) -> None:
    row = shop.table("shop.columns").collect()[2]
    assert len(row) == 3000
    assert set(row) == {7}
    assert shop.sql("SELECT sum(c2999) FROM shop.columns").collect()[0][0] == 21


def test_a_task_that_is_cancelled_leaves_no_memory(shop: SparkSession) -> None:
    assert shop.sql("SELECT count(s) FROM shop.big").count() == 1
    (daemon,) = daemons()
    before = memory_files(daemon)
    assert before > 0

    def slow(batches):
        for batch in batches:
            time.sleep(30)
            yield batch

    context = shop.sparkContext
    frame = shop.table("shop.big").mapInArrow(slow, "id bigint, s string, x double")
    context.setJobGroup("cancelled", "a slow read", interruptOnCancel=True)

    def cancel() -> None:
        tracker = context.statusTracker()
        until = time.monotonic() + 120
        while time.monotonic() < until:
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            if any(each and each.numActiveTasks for each in stages):
                break
            time.sleep(0.1)
        time.sleep(1)
        context.cancelJobGroup("cancelled")

    cancelling = threading.Thread(target=cancel)
    cancelling.start()
    try:
        with pytest.raises(Exception, match="cancelled"):
            frame.collect()
    finally:
        cancelling.join()
        context.setLocalProperty("spark.jobGroup.id", None)
    until = time.monotonic() + 60
    while memory_files(daemon) > before and time.monotonic() < until:
        time.sleep(0.1)
    assert memory_files(daemon) <= before
    assert shop.sql("SELECT count(s) FROM shop.big").count() == 1
