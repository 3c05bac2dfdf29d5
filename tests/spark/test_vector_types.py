"""What Spark sees through the catalog is each value of the store, and it comes back as it was."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import register
from tests.spark.sql_copy import same
from tests.spark.test_types import ROWS, SCHEMA

UTC = dt.UTC
MIB = 1 << 20
_numbers = itertools.count()


def _times(zone: dt.tzinfo | None) -> list[dt.datetime]:
    """Return times around the changes of clocks in Berlin and New York, and far away ones."""
    texts = (
        "2026-03-29 00:59:59.999999",
        "2026-03-29 01:00:00",
        "2026-03-29 02:30:00",  # no such time in Berlin
        "2026-10-25 00:30:00",
        "2026-10-25 01:30:00",
        "2026-10-25 02:30:00",  # twice in Berlin
        "2026-03-08 02:30:00",  # no such time in New York
        "2026-11-01 01:30:00",  # twice in New York
        "2026-11-01 05:30:00",
        "2026-11-01 06:30:00",
        "1893-03-31 23:59:59.999999",
        "1582-10-04 23:59:59",
        "1582-10-10 12:00:00",  # no such day in Spain
        "1582-10-15 00:00:00",
        "0001-01-02 00:00:00.000001",
        "1969-12-31 23:59:59.999999",
        "1970-01-01 00:00:00",
        "9999-12-30 23:59:59.999999",
    )
    return [dt.datetime.fromisoformat(text).replace(tzinfo=zone) for text in texts]


def _days() -> list[dt.date]:
    texts = "0001-01-01 0004-02-29 1500-02-28 1582-10-04 1582-10-05 1582-10-14 1582-10-15"
    more = " 1900-02-28 1969-12-31 1970-01-01 2000-02-29 9999-12-31"
    return [dt.date.fromisoformat(text) for text in (texts + more).split()]


def _decimals(digits: int, scale: int) -> list[Decimal]:
    most, beyond = 10**digits - 1, 1 << 63  # eight bytes hold one less
    found = [most, -most, 1, -1, 0]
    if digits > 18:
        found += [beyond, -beyond, beyond - 1, -beyond - 1]
    return [Decimal(f"{number}E-{scale}") for number in found]


_FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25]
_LONG = "ü€😀x" * (MIB // 10)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "yes": (pa.bool_(), [True, False, True, True, False]),
    "i8": (pa.int8(), [-128, 127, 0, -1]),
    "i16": (pa.int16(), [-(1 << 15), (1 << 15) - 1, 0, -1]),
    "i32": (pa.int32(), [-(1 << 31), (1 << 31) - 1, 0, -1]),
    "i64": (pa.int64(), [-(1 << 63), (1 << 63) - 1, 0, -1]),
    "u8": (pa.uint8(), [255, 128, 0]),
    "u16": (pa.uint16(), [(1 << 16) - 1, 1 << 15, 0]),
    "u32": (pa.uint32(), [(1 << 32) - 1, 1 << 31, 0]),
    "u64": (pa.uint64(), [(1 << 64) - 1, 1 << 63, 0]),
    "f16": (pa.float16(), [*_FLOATS, 65504.0]),
    "f32": (pa.float32(), [*_FLOATS, 2.0**-149, 2.0**127]),
    "f64": (pa.float64(), [*_FLOATS, 5e-324, 1.7976931348623157e308, math.pi]),
    "d1": (pa.decimal128(1, 1), _decimals(1, 1)),
    "d9": (pa.decimal128(9, 2), _decimals(9, 2)),
    "d18": (pa.decimal128(18, 4), _decimals(18, 4)),
    "d19": (pa.decimal128(19, 0), _decimals(19, 0)),
    "d38": (pa.decimal128(38, 38), _decimals(38, 38)),
    "d38w": (pa.decimal128(38, 0), _decimals(38, 0)),
    "s": (pa.string(), ["", "a", "ü€😀", "\0", "e\u0301", "\U0010ffff", "x" * 1000]),
    "ls": (pa.large_string(), ["", "b", "nul\0nul", "y" * 999]),
    "b": (pa.binary(), [b"", b"\0", b"\xff\xfe", b"z" * 500]),
    "lb": (pa.large_binary(), [b"", b"\x80", b"w" * 77]),
    "day": (pa.date32(), _days()),
    "ts": (pa.timestamp("us", "UTC"), _times(UTC)),
    "naive": (pa.timestamp("us"), _times(None)),
    "milli": (pa.timestamp("ms", "Europe/Berlin"), [t.replace(microsecond=0) for t in _times(UTC)]),
    "nano": (pa.timestamp("ns"), [t for t in _times(None) if 1700 < t.year < 2200]),
    "t": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999999), dt.time(12, 0, 0, 1)]),
    "span": (pa.duration("us"), [dt.timedelta(-1), dt.timedelta(0), dt.timedelta(10**6, 1)]),
    "texts": (pa.list_(pa.string()), [[], [None], ["", "ü", None, "x" * 300], ["a"]]),
    "deep": (
        pa.list_(pa.list_(pa.decimal128(38, 10))),
        [[], [None, []], [[Decimal("-1.0000000001"), None], [Decimal(10**27)]]],
    ),
    "point": (pa.list_(pa.float32(), 3), [[1.0, -0.0, math.nan], [0.0, math.inf, 2.5]]),
    "pair": (
        pa.struct([("n", pa.int64()), ("s", pa.string()), ("days", pa.list_(pa.date32()))]),
        [
            {"n": None, "s": None, "days": None},
            {"n": -1, "s": "", "days": [_days()[0], None, _days()[-1]]},
            {"n": 1 << 62, "s": "ü", "days": []},
        ],
    ),
    "named": (
        pa.map_(pa.string(), pa.struct([("x", pa.float64()), ("at", pa.timestamp("us", "UTC"))])),
        [
            [],
            [("", None)],
            [("b", {"x": -0.0, "at": _times(UTC)[7]}), ("a", {"x": math.nan, "at": None})],
        ],
    ),
}
NESTED = {"texts", "deep", "point", "pair", "named"}
ID = pa.field("id", pa.int64(), nullable=False)
ALL = pa.schema([ID, *(pa.field(name, kind) for name, (kind, _) in VALUES.items())])
FLAT = pa.schema([field for field in ALL if field.name not in NESTED])
ROW_COUNT = 83
# Of each column whether row n is null: at both ends, in places of all bits, all, and none.
_HOLES = (
    lambda n: n in {0, ROW_COUNT - 1},
    lambda n: n % 2 == 0,
    lambda n: n % 8 == 7,
    lambda n: n % 3 != 1,
    lambda _: False,
    lambda n: 8 <= n < 24,
    lambda n: n > 40,
    lambda n: n < 40,
)


def _columns(schema: pa.Schema) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"id": [*range(ROW_COUNT)]}
    for place, name in enumerate(schema.names[1:]):
        hole, values = _HOLES[place % len(_HOLES)], VALUES[name][1]
        found[name] = [None if hole(n) else values[n % len(values)] for n in range(ROW_COUNT)]
    return found


def _table(schema: pa.Schema) -> pa.Table:
    return pa.table(_columns(schema), schema)


def _same(value: Any) -> object:
    """Return a value so that equal ones have the same bits, at any depth."""
    if isinstance(value, dict):
        return {name: _same(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_same(each) for each in value]
    if isinstance(value, Decimal):
        return format(value, "f")
    return bytes(value) if isinstance(value, bytearray) else same(value)


def _rows(table: pa.Table) -> list[object]:
    return [_same(row) for row in table.sort_by("id").to_pylist()]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as db:
        db.serve_local()
        yield db


class Shop:
    """A catalog of a store, in a session with a zone of its own."""

    def __init__(self, spark: SparkSession, db: st.Store, zone: str = "UTC") -> None:
        self.db, self._name = db, f"v{next(_numbers)}"
        self._spark = spark.newSession()
        self._spark.conf.set("spark.sql.session.timeZone", zone)
        register(self._spark, stores={self._name: db})
        self._spark.sql(f"USE {self._name}")

    def sql(self, text: str) -> DataFrame:
        return self._spark.sql(text)

    def python(self, table: str) -> DataFrame:
        options = {"uri": str(self.db.path), "table": table}
        return self._spark.read.format("siltstone").options(**options).load()

    def stored(self, table: str) -> list[object]:
        return _rows(self.db[table].to_arrow())


def _made(db: st.Store, name: str, schema: pa.Schema, rows: pa.Table | None = None) -> None:
    db.create_table(name, schema, "id")
    if rows is not None:
        db[name].insert(rows)


# --- reads


@pytest.mark.parametrize("schema", [FLAT, ALL], ids=["mapped", "streamed"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Europe/Berlin"])
def test_each_value_is_the_one_that_the_python_source_reads(
    spark: SparkSession, db: st.Store, schema: pa.Schema, zone: str
) -> None:
    _made(db, "t", schema, _table(schema))
    shop = Shop(spark, db, zone)
    ours, theirs = shop.sql("SELECT * FROM t"), shop.python("t")
    assert ours.dtypes == theirs.dtypes
    assert _rows(ours.toArrow()) == _rows(theirs.toArrow())
    assert [_same(row.asDict(True)) for row in ours.orderBy("id").collect()] == [
        _same(row.asDict(True)) for row in theirs.orderBy("id").collect()
    ]
    shown = ours.toArrow()
    for name in shown.column_names:  # what Spark has is what the store has
        wanted = db["t"].to_arrow().sort_by("id").column(name)
        found = shown.sort_by("id").column(name)
        if name not in NESTED and name != "t":
            found = found.cast(wanted.type)
        assert _same(found.to_pylist()) == _same(wanted.to_pylist()), name


def test_nulls_lie_at_each_bit_of_rows_that_begin_anywhere(
    spark: SparkSession, db: st.Store
) -> None:
    _made(db, "t", FLAT, _table(FLAT))
    for _ in range(2):  # from memory, then from files
        shop, expected = Shop(spark, db), [_same(row) for row in _table(FLAT).to_pylist()]
        for first, end in [(0, 1), (1, 9), (3, 20), (7, 8), (8, 83), (13, 82), (82, 83), (83, 90)]:
            text = f"SELECT * FROM t WHERE id >= {first} AND id < {end}"
            assert len(shop.sql(text).collect()) == max(0, min(end, ROW_COUNT) - first)
            found = shop.sql(text).toArrow()
            assert _rows(_as_stored(found)) == expected[first:end]
        db.checkpoint()
        db.merge()


def _as_stored(found: pa.Table) -> pa.Table:
    """Return rows of flat columns in the types of the store."""
    columns = [found.column(field.name) for field in FLAT]
    columns = [c.cast(pa.time64("us")) if pa.types.is_time64(c.type) else c for c in columns]
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, FLAT, strict=True)], schema=FLAT
    )


def test_a_limit_ends_anywhere_in_a_byte_of_nulls(spark: SparkSession, db: st.Store) -> None:
    _made(db, "t", FLAT, _table(FLAT))
    shop = Shop(spark, db)
    expected = [_same(row) for row in _table(FLAT).to_pylist()]
    for count in (1, 7, 8, 9, 82):
        found = shop.sql(f"SELECT * FROM t LIMIT {count}").toArrow()
        rows = _as_stored(found)
        assert len(rows) == count
        assert all(row in expected for row in _rows(rows))


@pytest.mark.parametrize("schema", [FLAT, ALL], ids=["mapped", "streamed"])
def test_no_rows_are_read_as_none(spark: SparkSession, db: st.Store, schema: pa.Schema) -> None:
    _made(db, "t", schema)
    db.create_table("plain", schema)
    shop = Shop(spark, db)
    for table in ("t", "plain"):
        assert shop.sql(f"SELECT * FROM {table}").collect() == []
        assert shop.sql(f"SELECT count(s), max(d38), min(ts) FROM {table}").collect() == [
            (0, None, None)
        ]
    db["t"].insert(_table(schema))
    assert shop.sql("SELECT * FROM t WHERE id < 0").collect() == []
    assert shop.sql("SELECT * FROM t WHERE length(s) < 0").collect() == []
    db["t"].delete([*range(ROW_COUNT)])
    db.checkpoint()
    db.merge()
    assert shop.sql("SELECT * FROM t").collect() == []
    assert shop.sql("SELECT count(*) FROM t WHERE id >= 0").collect() == [(0,)]


def test_texts_of_no_byte_and_of_a_mebibyte_come_through(spark: SparkSession, db: st.Store) -> None:
    long = pa.schema([("id", pa.int64()), ("s", pa.string()), ("b", pa.binary())])
    rows = [
        {"id": n, "s": (None, "", _LONG, "x")[n % 4], "b": (b"", None, b"\xff" * MIB)[n % 3]}
        for n in range(13)
    ]
    _made(db, "t", long, pa.Table.from_pylist(rows, long))
    _made(db, "copy", long)
    shop = Shop(spark, db)
    assert _rows(shop.sql("SELECT * FROM t").toArrow()) == [_same(row) for row in rows]
    shop.sql("INSERT INTO copy SELECT * FROM t")
    assert shop.stored("copy") == shop.stored("t")
    shop.sql("UPDATE copy SET s = concat(s, ''), b = NULL WHERE length(s) > 9")
    kept = [dict(row, b=None) if row["s"] == _LONG else row for row in rows]
    assert shop.stored("copy") == [_same(row) for row in kept]


# --- and back


MERGED = "MERGE INTO {0} t USING {1} s ON t.id = s.id"


@pytest.mark.parametrize("schema", [FLAT, ALL], ids=["flat", "nested"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_each_value_comes_back_as_it_was(
    spark: SparkSession, db: st.Store, schema: pa.Schema, zone: str
) -> None:
    _made(db, "t", schema, _table(schema))
    for name in ("inserted", "merged", "updated", "overwritten"):
        _made(db, name, schema)
    shop, expected = Shop(spark, db, zone), _rows(_table(schema))
    shop.sql("INSERT INTO inserted SELECT * FROM t")
    shop.sql(f"{MERGED.format('merged', 't')} WHEN NOT MATCHED THEN INSERT *")
    db["updated"].insert([dict.fromkeys(schema.names) | {"id": n} for n in range(ROW_COUNT)])
    shop.sql(f"{MERGED.format('updated', 't')} WHEN MATCHED THEN UPDATE SET *")
    shop.sql("INSERT OVERWRITE overwritten SELECT * FROM t")
    for name in ("inserted", "merged", "updated", "overwritten"):
        assert shop.stored(name) == expected, name
    shop.sql("UPDATE updated SET yes = NOT yes WHERE id % 2 = 0")
    found = db["updated"].to_arrow().drop_columns("yes")
    assert _rows(found) == _rows(_table(schema).drop_columns("yes"))
    db.checkpoint()
    db.merge()
    shop.sql(f"{MERGED.format('updated', 't')} WHEN MATCHED THEN UPDATE SET yes = s.yes")
    assert shop.stored("updated") == expected
    assert db.verify(deep=True).is_sound


def test_types_that_spark_has_others_for_come_back_as_they_were(
    spark: SparkSession, db: st.Store
) -> None:
    _made(db, "t", SCHEMA, pa.Table.from_pylist(ROWS, SCHEMA))
    _made(db, "copy", SCHEMA)
    shop = Shop(spark, db)
    expected = shop.stored("t")
    shop.sql("INSERT INTO copy SELECT * FROM t")
    assert shop.stored("copy") == expected
    shop.sql("UPDATE copy SET days = NULL WHERE id % 3 = 1")
    shop.sql(f"{MERGED.format('copy', 't')} WHEN MATCHED THEN UPDATE SET *")
    assert shop.stored("copy") == expected
    shop.sql("UPDATE copy SET id = id WHERE id % 3 = 1")
    assert shop.stored("copy") == expected


def test_a_nanosecond_is_lost_by_no_update_of_another_column(
    spark: SparkSession, db: st.Store
) -> None:
    at = pa.array([1, None, 2_000], pa.timestamp("ns"))
    rows = pa.table({"id": pa.array([1, 2, 3]), "n": pa.array([0, 0, 0]), "at": at})
    _made(db, "t", rows.schema, rows)
    shop, before = Shop(spark, db), db.seq
    with pytest.raises(Exception, match="'at'"):
        shop.sql("UPDATE t SET n = 1 WHERE id % 2 = 1")
    assert db.seq == before
    shop.sql("UPDATE t SET n = 1 WHERE id = 3")
    assert db["t"].to_arrow().sort_by("id").column("at").equals(rows.column("at"))


def test_rows_go_by_keys_of_all_types(spark: SparkSession, db: st.Store) -> None:
    kinds = ("yes", "i8", "i64", "u64", "d18", "d38", "s", "ls", "b", "lb", "day", "ts", "naive")
    for name in kinds:
        kind, values = VALUES[name]
        keys = pa.array(dict.fromkeys(values), kind)
        rows = pa.table({"id": keys, "n": pa.array(range(len(keys)), pa.int64())})
        _made(db, f"by_{name}", rows.schema, rows)
    shop = Shop(spark, db, "America/New_York")
    for name in kinds:
        before = db[f"by_{name}"].to_arrow().to_pylist()
        shop.sql(f"UPDATE by_{name} SET n = n + 100 WHERE n % 2 = 0")
        shop.sql(
            f"{MERGED.format(f'by_{name}', f'by_{name}')} WHEN MATCHED AND t.n = 1 THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET *"
        )
        wanted = {r["id"]: r["n"] + 100 * (r["n"] % 2 == 0) for r in before if r["n"] != 1}
        assert {r["id"]: r["n"] for r in db[f"by_{name}"].to_arrow().to_pylist()} == wanted, name
