"""Every key type and every column type is the same at every level: memory, log, history, base."""

# ruff: noqa: DTZ001, DTZ901 (columns without a zone hold moments without one)

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import siltstone as st
from siltstone.formats.schema import parse_type
from tests.unchanged import MANY, connect

UTC = dt.UTC
DAY = dt.datetime(2020, 7, 1, 12, 30)
OLD = dt.datetime(1969, 12, 31, 23, 59, 59)


def integers(bits: int, *, signed: bool) -> list[object]:
    return (
        [-(1 << bits - 1), -1, 0, (1 << bits - 1) - 1]
        if signed
        else [0, 1, 1 << bits - 1, (1 << bits) - 1]
    )


def aware(*moments: dt.datetime) -> list[object]:
    return [moment.replace(tzinfo=UTC) for moment in moments]


KEYS: dict[str, list[object]] = {
    **{f"int{bits}": integers(bits, signed=True) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": integers(bits, signed=False) for bits in (8, 16, 32, 64)},
    "string": ["", "a", "é☃😀", "a\0b", " "],
    "large_string": ["", "x" * 300],
    "binary": [b"", b"\0", b"\0\0", b"\xff"],
    "large_binary": [b"", b"\0"],
    "date32": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "timestamp[s]": [dt.datetime(1, 1, 1), OLD, DAY],
    "timestamp[us]": [dt.datetime(1, 1, 1), OLD, DAY, dt.datetime.max],
    "timestamp[ns]": [OLD, DAY],
    "timestamp[ms, tz=UTC]": aware(OLD, DAY),
    "timestamp[us, tz=Europe/Berlin]": aware(OLD, DAY),
    "timestamp[ns, tz=+02:00]": aware(OLD, DAY),
    "decimal128(10, 2)": [Decimal("0.00"), Decimal("-1.25"), Decimal("99999999.99")],
    "decimal128(38, 4)": [Decimal("-" + "9" * 34 + ".9999"), Decimal("0.0000"), Decimal("1.0000")],
    "bool": [False, True],
}


def reopened(store: st.Store) -> st.Store:
    store.close()
    return connect(store.path)


class Keyed:
    """A table `t` of key columns and `at`, the place of the key in `keys`."""

    def __init__(self, folder: Path, columns: dict[str, str], keys: Sequence[object]) -> None:
        self.keys, self.names = list(keys), list(columns)
        self.types = [parse_type(kind) for kind in columns.values()]
        self.store = connect(folder)
        self.store.create_table("t", {**columns, "at": "int64"}, primary_key=list(columns))

    def rows(self, places: Sequence[int]) -> list[dict[str, object]]:
        parts = [key if isinstance(key, tuple) else (key,) for key in self.keys]
        return [{**dict(zip(self.names, parts[at], strict=True)), "at": at} for at in places]

    def arrow(self, places: Sequence[int]) -> pa.Table:
        """Return rows with the columns in another order than the table's."""
        fields = [("at", pa.int64()), *zip(self.names, self.types, strict=True)]
        return pa.Table.from_pylist(self.rows(places), pa.schema(fields))

    def check(self, places: Sequence[int], level: str) -> None:
        """The rows at `places`, and no other, are found by scan, get, get_many and filter."""
        table = self.store["t"]
        wanted = self.arrow(places).select(table.schema.names).cast(table.schema)
        assert table.to_arrow().sort_by("at").equals(wanted), level
        assert table.count() == len(places), level
        for at, key in enumerate(self.keys):
            row = table.get(key)
            assert (row is not None) == (at in places), f"{level}: {key!r}"
            assert row is None or row["at"] == at, f"{level}: {key!r}"
        found = table.get_many(list(self.keys))["at"].to_pylist()
        assert found == sorted(places), level

    def live_through_all_levels(self) -> None:
        everything, half = range(len(self.keys)), len(self.keys) // 2
        table = self.store["t"]
        table.upsert(self.rows(range(half)))
        table.upsert(self.arrow(range(half, len(self.keys))))
        self.check(everything, "memtable")
        self.store = reopened(self.store)
        self.check(everything, "replayed")
        self.store.checkpoint()
        self.check(everything, "history")
        self.store.merge()
        self.check(everything, "base")
        table = self.store["t"]
        table.delete(self.keys[0])
        self.check(everything[1:], "deleted over base")
        with pytest.raises(st.DuplicateKeyError):
            table.insert(self.rows([len(self.keys) - 1]))
        self.store = reopened(self.store)
        self.check(everything[1:], "deleted, replayed")
        self.store.checkpoint()
        self.check(everything[1:], "deleted in history")
        self.store["t"].insert(self.rows([0]))
        self.check(everything, "inserted again")
        self.store.merge()
        self.store.checkpoint()
        self.store.merge()
        self.check(everything, "base again")
        self.store["t"].delete(self.arrow(everything).select(self.names))
        self.check([], "all deleted")
        self.store.close()


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_this_type_is_the_same_key_at_every_level(tmp_path: Path, kind: str) -> None:
    Keyed(tmp_path / "s", {"k": kind}, KEYS[kind]).live_through_all_levels()


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ({"a": "string", "b": "int64"}, [("", 0), ("", 1), ("a", 0), ("a\0", -1)]),
        ({"a": "date32", "b": "bool"}, [(dt.date(1, 1, 1), True), (dt.date(1, 1, 1), False)]),
        (
            {"a": "decimal128(30, 2)", "b": "timestamp[us, tz=UTC]", "c": "binary"},
            [(Decimal("1.50"), *aware(DAY), b""), (Decimal("-1.50"), *aware(OLD), b"\0")],
        ),
        ({"b": "uint64", "a": "uint64"}, [(0, 1), (1, 0), ((1 << 64) - 1, 0)]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_composite_key_is_the_same_key_at_every_level(
    tmp_path: Path, columns: dict[str, str], keys: list[object]
) -> None:
    Keyed(tmp_path / "s", columns, keys).live_through_all_levels()


INNER = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string())])
COLUMNS: dict[object, list[object]] = {
    **{f"int{bits}": [*integers(bits, signed=True), None] for bits in (8, 64)},
    **{f"uint{bits}": [*integers(bits, signed=False), None] for bits in (16, 32)},
    "bool": [True, False, None],
    "float16": [0.0, 1.5, math.inf, None],
    "float32": [0.1, -0.0, 3.4e38, math.inf, None],
    "float64": [0.1, 5e-324, -math.inf, None],
    "string": ["", "é\0😀", None],
    "large_string": ["", "x" * 1000, None],
    "binary": [b"", b"\0\xff", None],
    "large_binary": [b"", b"\0\xff", None],
    "date32": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
    "time32[s]": [dt.time(0), dt.time(23, 59, 59), None],
    "time32[ms]": [dt.time(1, 2, 3, 4000), None],
    "time64[us]": [dt.time(1, 2, 3, 4), None],
    "time64[ns]": [dt.time(1, 2, 3, 4), None],
    "timestamp[s]": [dt.datetime(1, 1, 1), DAY, None],
    "timestamp[ms]": [OLD, None],
    "timestamp[us]": [dt.datetime.min, dt.datetime.max, None],
    "timestamp[ns]": [OLD, DAY, None],
    "timestamp[us, tz=America/New_York]": [*aware(OLD, DAY), None],
    "decimal128(5, 2)": [Decimal("-999.99"), Decimal("0.10"), None],
    "decimal128(38, 10)": [Decimal("9" * 28 + "." + "1" * 10), None],
    "decimal128(5, -2)": [Decimal(100), None],
    "vector(float32, 3)": [[1.0, -0.0, 2.5], None],
    pa.list_(pa.float16(), 2): [[1.0, 2.0], None],
    pa.list_(pa.int64()): [[], [1, None, 2], None],
    pa.list_(pa.string()): [["", None, "é"], [], None],
    pa.list_(pa.list_(pa.int32())): [[[1], [], None], None],
    pa.list_(pa.timestamp("us")): [[DAY, None], None],
    pa.list_(INNER): [[{"a": 1, "b": "y"}, None], [], None],
    INNER: [{"a": 1, "b": None}, {"a": None, "b": "x"}, None],
    pa.struct([("d", pa.decimal128(30, 2)), ("l", pa.list_(pa.date32()))]): [
        {"d": Decimal("1.50"), "l": [dt.date(2020, 1, 1)]},
        {"d": None, "l": None}, None,
    ],
}  # fmt: skip


class Typed:
    """A table `t`; `v` of the row `id` is the value at `id` modulo the number of values."""

    def __init__(self, folder: Path, kind: object, values: list[object], *, keyed: bool) -> None:
        self.type = parse_type(kind) if isinstance(kind, str) else kind
        self.values, self.keyed, self.count = values, keyed, 0
        self.expected = pa.array(values, self.type)
        self.store = connect(folder)
        key = "id" if keyed else ()
        self.store.create_table("t", {"id": "int64", "v": kind}, primary_key=key)

    def write(self, rows: int, *, as_arrow: bool, in_transaction: bool = False) -> None:
        ids = range(self.count, self.count + rows)
        values = [self.values[at % len(self.values)] for at in ids]
        given: object = [{"id": at, "v": value} for at, value in zip(ids, values, strict=True)]
        if as_arrow:
            given = pa.table({"v": pa.array(values, self.type), "id": pa.array(ids, pa.int64())})
        name = "upsert" if self.keyed else "append"
        if in_transaction:
            with self.store.transaction() as tx:
                getattr(tx["t"], name)(given)
        else:
            getattr(self.store["t"], name)(given)
        self.count += rows

    def check(self, level: str, store: st.Store | None = None) -> None:
        table = (store or self.store)["t"]
        assert table.schema.field("v").type == self.type
        found = table.to_arrow().sort_by("id").combine_chunks()
        assert found["id"].to_pylist() == list(range(self.count)), level
        places = pa.array([at % len(self.values) for at in range(self.count)])
        assert found["v"].combine_chunks().equals(self.expected.take(places)), level
        if self.keyed:
            for at, value in enumerate(self.expected.to_pylist()):
                row = table.get(at)
                assert row is not None, level
                assert repr(row["v"]) == repr(value), level


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "plain"])
@pytest.mark.parametrize("kind", COLUMNS, ids=str)
def test_a_value_of_this_type_is_the_same_at_every_level(
    tmp_path: Path, kind: object, keyed: bool
) -> None:
    life = Typed(tmp_path / "s", kind, COLUMNS[kind], keyed=keyed)
    life.write(len(life.values), as_arrow=False)
    life.write(3, as_arrow=True)
    life.check("memtable")
    life.store.checkpoint()
    life.check("history")
    life.store.merge()
    life.check("base")
    life.write(MANY, as_arrow=True)
    life.write(2, as_arrow=False, in_transaction=True)
    life.check("memtable over base")
    life.store = reopened(life.store)
    life.check("replayed")
    with st.connect(life.store.path, read_only=True) as reader:
        life.check("read by another handle", reader)
    life.store.checkpoint()
    life.store.merge()
    life.check("base again")
    life.store.close()


FLOAT_BITS = [
    0x8000000000000000,  # -0.0
    0x7FF8000000000000,  # the usual NaN
    0xFFF8000000000001,  # a negative NaN with a payload
    0x7FF80000DEADBEEF,
    0x0000000000000001,
]


def bits_of(column: pa.ChunkedArray) -> list[int]:
    return column.combine_chunks().view(pa.uint64()).to_pylist()


@pytest.mark.parametrize("as_arrow", [True, False], ids=["arrow", "dicts"])
def test_nan_and_minus_zero_keep_every_bit_through_log_flush_and_merge(
    tmp_path: Path, as_arrow: bool
) -> None:
    bits = FLOAT_BITS * (MANY // 5 if as_arrow else 1)
    floats = [struct.unpack("<d", struct.pack("<Q", each))[0] for each in bits]
    store = connect(tmp_path / "s")
    store.create_table("t", {"id": "int64", "x": "float64"}, primary_key="id")
    rows: object = [{"id": at, "x": value} for at, value in enumerate(floats)]
    if as_arrow:
        rows = pa.table(
            {"id": pa.array(range(len(bits))), "x": pa.array(bits, pa.uint64()).view("double")}
        )
    store["t"].upsert(rows)
    steps = [lambda s: s, reopened, lambda s: s.checkpoint() and s, lambda s: s.merge() and s]
    for step in (*steps, reopened):
        store = step(store)
        assert bits_of(store["t"].to_arrow().sort_by("id")["x"]) == bits
        row = store["t"].get(2)
        assert row is not None
        assert struct.pack("<d", row["x"]) == struct.pack("<Q", bits[2])
    store.close()


def test_a_number_that_float32_cannot_hold_is_refused_and_others_are_rounded(
    tmp_path: Path,
) -> None:
    with connect(tmp_path / "s") as store:
        table = store.create_table("t", {"id": "int64", "x": "float32"}, primary_key="id")
        with pytest.raises(st.SchemaMismatchError, match="'x' is float, not float 1e"):
            table.upsert({"id": 1, "x": 1e300})
        table.upsert({"id": 1, "x": 0.1})
        in_memory = table.get(1)
        store.checkpoint()
        assert (
            table.get(1)
            == in_memory
            == {"id": 1, "x": struct.unpack("f", struct.pack("f", 0.1))[0]}
        )
