"""A filter that names keys is a look-up, and keeps the rows that a scan keeps, for every key."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.engine.filter.filters import filter_of, parse
from siltstone.engine.filter.key_span import span_of
from siltstone.engine.filter.named_keys import keys_named
from siltstone.engine.levels import base
from siltstone.engine.read.read_union import KEYS_MAX, KeyedReader
from siltstone.maintenance.merge import merge
from siltstone.storage.lance.read.pinned import LancePinned
from siltstone.storage.tables.keys.key_cover import TableKeys
from tests.nightly import by_day

DAY, ZONE = dt.date(2026, 1, 1), "America/New_York"
MOMENT = dt.datetime(2026, 1, 1, 7, 30)  # noqa: DTZ001 - of columns with and without a zone
UUIDS = [uuid.UUID(int=n << 64 | 5) for n in range(12)]


@dataclass(frozen=True)
class Kind:
    """A type of key: its values in ascending order, and how SQL says them and others."""

    type: Any
    values: list[Any]
    texts: list[str]
    others: tuple[str, ...] = ()


def whole(kind: pa.DataType, values: list[int]) -> Kind:
    texts = [str(n) for n in values]
    others = (
        f"{values[3]}.0",
        f"{values[3]}.5",
        f"'{values[3]}'",
        "1e30",
        "-1e30",
        f"{texts[2]}e0",
    )
    return Kind(kind, values, texts, (*others, "cast(3.0 as int)"))


def moments(kind: pa.DataType, zone: str) -> Kind:
    unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    start = int(MOMENT.replace(tzinfo=dt.UTC).timestamp())
    values = pa.array([(start + 3600 * n) * unit for n in range(12)], pa.int64()).view(kind)
    texts = [f"'{MOMENT + dt.timedelta(hours=n)}{zone}'" for n in range(12)]
    others = ("'2026-01-01'", "DATE '2026-01-02'", "'2026-01-01T07:30:00.0000001'", "7",
              "'2026-01-01 09:30:00+02'", "'tomorrow'")  # fmt: skip
    return Kind(kind, values.to_pylist() if unit < 10**9 else [*values], texts, others)


def decimals(kind: Any) -> Kind:
    values = [Decimal(n).scaleb(-kind.scale) for n in range(-3, 9)]
    texts = [format(value, "f") for value in values]
    return Kind(kind, values, texts, ("0.00000000000000000001", "3", "1e3", "'1'"))


NAMES = ["", "a", "A", "b", "it''s", "ä", "z\\", "%", "3", "x" * 40, "é", "é"]
KINDS = {
    "i8": whole(pa.int8(), [-128, -3, *range(9), 127]),
    "i64": whole(pa.int64(), [-(2**63), -3, *range(9), 2**63 - 1]),
    "u64": whole(pa.uint64(), [*range(11), 2**64 - 1]),
    "text": Kind(pa.string(), [n.replace("''", "'") for n in NAMES], [f"'{n}'" for n in NAMES],
                 ("3", "TRUE")),
    "large": Kind(pa.large_string(), [n.replace("''", "'") for n in NAMES],
                  [f"'{n}'" for n in NAMES]),
    "bytes": Kind(pa.binary(), [bytes([n]) * n for n in range(12)],
                  [f"X'{(bytes([n]) * n).hex()}'" for n in range(12)], ("'a'",)),
    "fixed": Kind(pa.binary(2), [bytes([n, 0]) for n in range(12)],
                  [f"X'{n:02x}00'" for n in range(12)], ("X'05'", "X'050000'")),
    "uuid": Kind(pa.uuid(), UUIDS, [f"'{n}'" for n in UUIDS], (f"'{UUIDS[3].hex}'", "'no'", "3")),
    "date": Kind(pa.date32(), [DAY + dt.timedelta(days=n) for n in range(12)],
                 [f"'{DAY + dt.timedelta(days=n)}'" for n in range(12)],
                 ("'2026-01-03 00:00'", "'2026-01-03 10:00'", "TIMESTAMP '2026-01-03'", "3")),
    "s": moments(pa.timestamp("s"), ""),
    "us": moments(pa.timestamp("us"), ""),
    "ns": moments(pa.timestamp("ns"), ""),
    "ms_utc": moments(pa.timestamp("ms", "UTC"), "Z"),
    "us_zone": moments(pa.timestamp("us", ZONE), "+00:00"),
    "dec": decimals(pa.decimal128(10, 2)),
    "digits": decimals(pa.decimal128(38, 10)),
}  # fmt: skip
PAIRS = {"pair": ("i64", "text"), "times": ("us_zone", "dec"), "bits": ("bool", "uuid")}
BOOL = Kind(pa.bool_(), [False, True] * 6, ["FALSE", "TRUE"] * 6)


def columns_of(table: str) -> dict[str, Kind]:
    """Return the key columns of a table."""
    if table in PAIRS:
        kinds = KINDS | {"bool": BOOL}
        return {f"k{n}": kinds[name] for n, name in enumerate(PAIRS[table])}
    return {"k": KINDS[table]}


def rows_of(table: str, numbers: range, turn: int) -> pa.Table:
    keys = {
        name: pa.array([kind.values[n % 12] for n in numbers], kind.type)
        for name, kind in columns_of(table).items()
    }
    more = {
        "v": pa.array([None if n % 5 == 0 else n + 100 * turn for n in numbers], pa.int64()),
        "f": pa.array([float("nan") if n % 3 == 0 else -0.0 for n in numbers], pa.float64()),
        "l": pa.array([[n, None] if n % 2 else None for n in numbers], pa.list_(pa.int64())),
    }
    if table in ("i8", "text"):
        more.pop("l")  # so that rows are kept as tuples
    return pa.table(keys | more)


@contextmanager
def opened(path: Path) -> Iterator[st.Store]:
    """Open a store with rows of twelve keys in each level: replaced, deleted, and hidden ones."""
    with st.connect(path, background=False) as db:
        for table in (*KINDS, *PAIRS):
            made = db.create_table(table, rows_of(table, range(1), 0).schema, [*columns_of(table)])
            made.upsert(rows_of(table, range(10), 1))
        for turn, (changed, gone) in enumerate([(range(2, 5), 5), (range(4, 8), 6)], 2):
            db.checkpoint()
            db.merge()
            for table in (*KINDS, *PAIRS):
                db[table].upsert(rows_of(table, changed, turn))
                db[table].delete(keys_in(table, range(gone, gone + 1)))
        db.checkpoint()
        for table in (*KINDS, *PAIRS):
            db[table].upsert(rows_of(table, range(9, 12), 7))
            db[table].delete(keys_in(table, range(2, 3)))
        yield db


def keys_in(table: str, numbers: range) -> pa.Table:
    return rows_of(table, numbers, 0).select([*columns_of(table)])


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    before, merge.COMPACT_BELOW_ROWS = merge.COMPACT_BELOW_ROWS, 0  # so that rows stay hidden
    with opened(tmp_path_factory.mktemp("keys") / "db") as db:
        yield db
    merge.COMPACT_BELOW_ROWS = before


SIGNS = ["<>", "<", "<=", ">", ">="]


def leaves(name: str, kind: Kind) -> some.SearchStrategy[str]:
    value = some.sampled_from([*kind.texts, *kind.texts, *kind.others, "NULL"])
    several = some.lists(value, min_size=1, max_size=4).map(", ".join)
    return some.one_of(
        some.builds("{} = {}".format, some.just(name), value),
        some.builds("{} IN ({})".format, some.just(name), several),
        some.builds("{1} = {0}".format, some.just(name), value),
        some.builds(
            "{} {} {}".format,
            some.just(name),
            some.sampled_from(["<>", "<", "<=", ">", ">="]),
            value,
        ),
        some.builds("{} BETWEEN {} AND {}".format, some.just(name), value, value),
        some.builds("({0} = {1}) IS TRUE".format, some.just(name), value),
        some.sampled_from([f"{name} IS NULL", f"{name} IS NOT NULL", f"{name} = {name}", name]),
    )


def filters(table: str) -> some.SearchStrategy[str]:
    named = some.one_of(*(leaves(name, kind) for name, kind in columns_of(table).items()))
    other = some.sampled_from(["v > 203", "v IS NULL", "v / 0 = 1", "f = 0", "TRUE", "FALSE"])
    return some.recursive(
        named | named | other,
        lambda inner: some.one_of(
            some.builds("({}) AND ({})".format, inner, inner),
            some.builds("({}) AND ({})".format, inner, inner),
            some.builds("({}) OR ({})".format, inner, inner),
            inner.map("NOT ({})".format),
        ),
        max_leaves=5,
    )


def answers(db: st.Store | st.Snapshot, table: str, wanted: Any, columns: Any = None) -> str:
    """Return the rows or the error of a filter, as text: NaN is not equal to itself."""
    try:
        rows = db[table].to_arrow(columns, wanted)
    except st.RequestError as error:
        return repr(error)
    return shown(rows)


def shown(rows: pa.Table) -> str:
    found = sorted(str([column[n] for column in rows.columns]) for n in range(rows.num_rows))
    return f"{rows.schema} {found}"


def scanned(reader: KeyedReader, wanted: Any, columns: list[str] | None = None) -> str:
    """Return what a filter keeps where nobody knows which keys it names."""
    schema = reader.table_schema.arrow
    try:
        parsed = filter_of(wanted, schema)
    except st.RequestError as error:
        return repr(error)
    batches = reader.scan(columns, replace(parsed, push=None))
    return shown(pa.Table.from_batches(batches, reader.table_schema.fields(columns)))


def named(reader: KeyedReader, wanted: Any) -> list[object] | None:
    found = filter_of(wanted, reader.table_schema.arrow)
    keys = keys_named(found.push, reader.table_schema.codec.names, KEYS_MAX)
    return None if keys is None else sorted(keys)


@settings(max_examples=by_day(60, 300), deadline=None)
@given(data=some.data())
def test_a_filter_that_names_keys_keeps_what_a_scan_keeps(db: st.Store, data: Any) -> None:
    table = data.draw(some.sampled_from([*KINDS, *PAIRS]))
    wanted = data.draw(filters(table))
    reader = db[table]._reader()
    right = scanned(reader, wanted)
    assert answers(db, table, wanted) == right
    if not right.startswith(("RequestError", "SchemaMismatchError")):
        keys = named(reader, wanted)
        event("names no keys" if keys is None else f"names {min(2, len(keys))} keys")
        assert db[table].count(wanted) == db[table].to_arrow(["v"], wanted).num_rows
        down = data.draw(some.booleans())
        ordered = db[table].scan(filter=wanted, order_by=[*columns_of(table)], descending=down)
        rows = ordered.read_all()
        assert shown(rows) == right
        codec = reader.table_schema.codec
        assert codec.keys(rows) == sorted(codec.keys(rows), reverse=down)


@pytest.mark.parametrize(
    ("table", "wanted", "span"),
    [
        ("i64", "k > 3", (4, None, True)),
        ("i64", "k > 3 AND k <= 9", (4, 9, True)),
        ("i64", "k BETWEEN 3 AND 5", (3, 5, True)),
        ("i64", "NOT k BETWEEN 3 AND 5", None),
        ("i64", "3 >= k", (None, 3, True)),
        ("i64", "k < 3.5", (None, 3, True)),
        ("i64", "k > -1e30", None),
        ("i64", "k > 1e30", "none"),
        ("i64", "k > 1e30 OR k > 3", (4, None, False)),
        ("i64", "k > 1e30 AND k > 3", "none"),
        ("i64", "k > 9223372036854775807", (2**63, None, True)),
        ("i64", "k > 3 AND v > 5", (4, None, False)),
        ("i64", "k > 3 AND k <> 5", (4, None, False)),
        ("i64", "k < 3 OR k = 9", (None, 9, False)),
        ("i64", "k IN (3, 9, 4)", (3, 9, False)),
        ("i64", "k > 3 OR v > 5", None),
        ("i64", "k + 0 > 3", None),
        ("i64", "(k > 3) IS TRUE", (4, None, False)),
        ("i64", "k > 3 AND k IS NOT NULL", (4, None, True)),
        ("u64", "k >= 18446744073709551615", (2**64 - 1, None, True)),
        ("date", "k >= '2026-01-01 10:00'", (20455, None, True)),
        ("us_zone", "k < '2026-01-01 09:30:00+02'", (None, 1767252600000000 - 1, True)),
        ("text", "k > 'a'", ("a", None, True)),
        ("text", "k BETWEEN 'b' AND 'd' AND k < 'd'", ("b", "d", True)),
        ("text", "k IN ('d', 'b')", ("b", "d", False)),
        ("text", "k < 'b' OR k <= 'd'", (None, "d", False)),
        ("text", "k >= 'a' AND v > 5", ("a", None, False)),
        ("text", "k LIKE 'a%'", None),
    ],
)
def test_the_range_of_keys_that_a_filter_names_is_known(
    db: st.Store, table: str, wanted: str, span: tuple[Any, Any, bool] | str | None
) -> None:
    found = span_of(filter_of(wanted, db[table]._reader().table_schema.arrow).push, "k")
    known = None if found is None else (found.low, found.high, found.is_all)
    assert ("none" if found is not None and found.is_empty else known) == span
    assert answers(db, table, wanted) == scanned(db[table]._reader(), wanted)


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The columns of each scan of Lance."""
    found: list[object] = []
    scan = LancePinned.scan

    def noting(self: LancePinned, columns: Any = None, **options: Any) -> Any:
        found.append(columns)
        return scan(self, columns, **options)

    monkeypatch.setattr(LancePinned, "scan", noting)
    monkeypatch.setattr(base, "_MISSES_MIN", 1 << 30)  # after some pages all rows come into memory
    return found


SHORT = [
    "id > {700} and id < {720}",
    "id between {700} and {720} and v > 9",
    "id >= {69995}",
    "id < {-5}",
]


@pytest.mark.parametrize("kind", ["int64", "string"])
@pytest.mark.parametrize("wanted", SHORT)
def test_a_short_range_is_no_scan(
    tmp_path: Path, scans: list[object], wanted: str, kind: str
) -> None:
    def key(number: int) -> int | str:
        return number if kind == "int64" else f"s3://bucket/{number + 100:06}"

    wanted = re.sub(r"{(.*?)}", lambda found: repr(key(int(found[1]))), wanted)
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", {"id": kind, "v": "int64"}, "id")
        numbers = list(range(70_000))
        table.upsert(pa.table({"id": [*map(key, numbers)], "v": numbers}))
        db.checkpoint()
        db.merge()
        table.upsert([{"id": key(n), "v": -n} for n in (-7, 704, 69_999)])
        table.delete([key(705)])
        scans.clear()
        found = table.to_arrow(filter=wanted)
        with db.snapshot() as snapshot:
            (task,) = snapshot.scan_tasks("t", filter=wanted)
            assert shown(pa.Table.from_batches(task.read())) == shown(found)
            assert snapshot.sql(f"select * from t where {wanted}").to_arrow().num_rows > 0
        assert table.count(wanted) == found.num_rows > 0
        assert table.count(f"id >= {key(30_000)!r} and id < {key(40_000)!r}") == 10_000
        assert scans == []
        assert shown(found) == scanned(table._reader(), wanted)
        assert table.count(f"id >= {key(0)!r}") == 69_999
        assert scans != []


@settings(max_examples=by_day(30, 100), deadline=None)
@given(data=some.data())
def test_so_does_one_of_another_engine(db: st.Store, data: Any) -> None:
    table = data.draw(some.sampled_from([*KINDS, *PAIRS]))
    tests = []
    for name, kind in columns_of(table).items():
        values = data.draw(some.lists(some.sampled_from(kind.values), min_size=1, max_size=3))
        if (
            data.draw(some.booleans())
            or table == "uuid"
            or pa.types.is_fixed_size_binary(kind.type)
        ):
            array = pa.array(values[:1], kind.type)
            tests.append(pc.field(name) == array[0])
        else:
            tests.append(pc.field(name).isin(pa.array(values, kind.type)))
    wanted = tests[0]
    for test in tests[1:]:
        wanted = wanted & test if data.draw(some.integers(0, 3)) else wanted | test
    if data.draw(some.booleans()):
        wanted = wanted & (pc.field("v") > 203)
    try:
        right = scanned(db[table]._reader(), wanted)
    except st.RequestError:
        return  # Arrow does not compare such values
    assert answers(db, table, wanted) == right


@pytest.mark.parametrize(
    ("table", "wanted", "keys"),
    [
        ("i64", "k = 3", [3]),
        ("i64", "3.0 = k AND v > 7", [3]),
        ("i64", "k = 3.5", []),
        ("i64", "k = 1e30", []),
        ("i64", "k IN (3, 4, NULL) AND k <> 4", [3, 4]),
        ("i64", "k IN (3, 4, 5) AND k IN (4, 5, 6)", [4, 5]),
        ("i64", "k = 3 OR k = 4", [3, 4]),
        ("i64", "(k = 3) IS TRUE", [3]),
        ("i64", "k = 3 OR v = 4", None),
        ("i64", "NOT k = 3", None),
        ("i64", "NOT k <> 3", None),
        ("i64", "k >= 3 AND k <= 3", None),
        ("i64", "k = NULL", None),
        ("i64", "k + 0 = 3", None),
        ("text", "k = 'it''s'", ["it's"]),
        ("date", "k = '2026-01-01'", [20454]),
        ("us_zone", "k = '2026-01-01 09:30:00+02'", [1767252600000000]),
        ("dec", "k IN (0.01, 3, 0.001)", [1, 300]),
        ("uuid", f"k = '{UUIDS[3]}'", [UUIDS[3].bytes]),
        ("fixed", "k = X'0500'", [b"\5\0"]),
        ("pair", "k0 = 3 AND k1 IN ('a', 'b')", [(3, "a"), (3, "b")]),
        ("pair", "(k0 = 3 AND k1 = 'a') OR (k0 = 4 AND k1 = 'a')", [(3, "a"), (4, "a")]),
        ("pair", "k0 = 3", None),
        ("pair", "k0 = 3 OR k1 = 'a'", None),
        ("bits", f"k0 AND k1 = '{UUIDS[3]}'", [(True, UUIDS[3].bytes)]),
    ],
)
def test_the_keys_that_a_filter_names_are_known(
    db: st.Store, table: str, wanted: str, keys: list[object] | None
) -> None:
    assert named(db[table]._reader(), wanted) == keys
    assert answers(db, table, wanted) == scanned(db[table]._reader(), wanted)


def test_a_list_as_duckdb_writes_it_names_its_keys(db: st.Store) -> None:
    null = pa.scalar(None, pa.bool_())
    listed = pc.field("k").isin(pa.array([3, 4]))
    wanted = pc.if_else(pc.field("k").is_valid(), listed, null)
    for each in (
        wanted,
        wanted & (pc.field("v") > 203),
        pc.if_else(pc.field("v") > 5, listed, null),
    ):
        assert sorted(named(db["i64"]._reader(), each) or ()) == [3, 4]
        assert answers(db, "i64", each) == scanned(db["i64"]._reader(), each)
    for each in (~wanted, pc.if_else(pc.field("v").is_valid(), listed, pc.field("v") > 5)):
        assert named(db["i64"]._reader(), each) is None
        assert answers(db, "i64", each) == scanned(db["i64"]._reader(), each)


def test_keys_beyond_the_bound_are_a_scan(db: st.Store) -> None:
    arrow = db["pair"].schema
    names = ["k0", "k1"]
    some_keys = parse("k0 IN (1, 2, 3, 4) AND k1 IN ('a', 'b', 'c', 'd')", arrow)
    assert len(keys_named(some_keys.push, names, 16) or ()) == 16
    assert keys_named(some_keys.push, names, 15) is None
    long = parse(f"k0 IN ({', '.join(map(str, range(KEYS_MAX + 1)))}) AND k1 = 'a'", arrow)
    assert keys_named(long.push, names, 1 << 30) is None
    assert db["pair"].count(f"k0 IN ({', '.join(map(str, range(KEYS_MAX + 1)))})") > 0


def test_a_deep_filter_names_no_keys(db: st.Store) -> None:
    wanted = pc.field("k") == 3
    for n in range(100):
        wanted = (wanted & (pc.field("v") != -n)) | (pc.field("k") == 4)
    assert answers(db, "i64", wanted) == scanned(db["i64"]._reader(), wanted)


def test_a_transaction_finds_its_own_rows_by_the_keys_that_a_filter_names(db: st.Store) -> None:
    for table in (*KINDS, *PAIRS):
        tests = [f"{name} = {kind.texts[3]}" for name, kind in columns_of(table).items()]
        with db.transaction() as tx:
            tx[table].upsert(rows_of(table, range(3, 4), 9))
            both = tx[table].to_arrow(["v"], " AND ".join(tests) + " AND v > 5")
            assert both["v"].to_pylist() == [903]
            tx[table].delete(keys_in(table, range(3, 4)))
            assert tx[table].count(" AND ".join(tests)) == 0
            assert tx[table].delete_where(" AND ".join(tests)) == 0
            tx.rollback()


def test_the_past_is_read_by_the_keys_that_a_filter_names(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", {"id": "string", "v": "int64"}, "id")
        seqs = []
        for turn in range(4):
            seqs.append(table.upsert([{"id": f"k{n}", "v": turn} for n in range(3)]).seq)
            db.checkpoint()
            db.merge()
        for turn, seq in enumerate(seqs):
            with db.snapshot(seq=seq) as past:
                found = past["t"].to_arrow(filter="id IN ('k1', 'k9') AND v >= 0").to_pylist()
                assert found == [{"id": "k1", "v": turn}]


def test_columns_added_and_renamed_later_are_read_by_the_keys_that_a_filter_names(
    tmp_path: Path,
) -> None:
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, "id")
        table.upsert([{"id": n, "v": n} for n in range(5)])
        db.checkpoint()
        db.merge()
        table.rename_column("id", "key")
        table.add_column("more", pa.list_(pa.int64()))
        table.upsert([{"key": 4, "v": 0, "more": [1]}])
        for wanted in ("key = 3 AND v = 3", "key IN (3, 4)", "key IN (2, 3) AND more IS NULL"):
            assert answers(db, "t", wanted) == scanned(table._reader(), wanted)
        assert table.to_arrow(["more"], "key IN (3, 7)").to_pylist() == [{"more": None}]


def test_sql_and_a_dataset_find_the_keys_that_a_filter_names(db: st.Store) -> None:
    assert db.sql("SELECT v FROM i64 WHERE k = 1 AND v > 100").fetchall() == [(203,)]
    assert db.sql("SELECT v FROM text WHERE k IN ('a', 'nobody')").fetchall() == [(101,)]


def test_statements_change_the_rows_of_the_keys_that_a_filter_names(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", {"a": "int64", "b": "string", "v": "int64"}, ["a", "b"])
        table.upsert([{"a": n % 5, "b": f"b{n}", "v": n} for n in range(20)])
        db.checkpoint()
        db.merge()
        assert table.delete_where("a = 3 AND b = 'b8' AND v = 8").rows == 1
        assert table.delete_where("a = 3 AND b = 'b3' AND v = 8").rows == 0
        assert table.count("a = 3 AND b IN ('b3', 'b8')") == 1


def test_a_scan_of_keys_still_conflicts_as_a_scan(db: st.Store) -> None:
    tx = db.transaction(isolation="serializable")
    assert tx["i8"].count("k = 50 AND v > 5") == 0
    tx["i8"].upsert({"k": 51, "v": 1}, "null")
    db["i8"].upsert({"k": 50, "v": 1}, "null")  # the filter does not keep it
    tx.commit()
    tx = db.transaction(isolation="serializable")
    assert tx["i8"].count("k = 50 AND v > 5") == 0
    tx["i8"].upsert({"k": 51, "v": 1}, "null")
    db["i8"].upsert({"k": 50, "v": 6}, "null")
    with pytest.raises(st.ConflictError):
        tx.commit()
    db["i8"].delete([50, 51])


@pytest.mark.parametrize("table", ["i8", "text"])
@pytest.mark.parametrize("given", [{}, {"filter": "v > 5"}])
def test_a_range_conflicts_with_what_is_written_within_it(
    db: st.Store, table: str, given: dict[str, str]
) -> None:
    rows, whole = rows_of(table, range(12), 1), db[table].to_arrow()
    codec = db[table]._reader().table_schema.codec
    keys = [codec.to_user(key) for key in sorted(codec.keys(rows))]
    inside, beyond = keys[4], keys[8]

    def committed(change: Any) -> None:
        tx = db.transaction(isolation="serializable")
        tx[table].range(keys[3], keys[6], limit=1, **given).read_all()
        tx[table].upsert(rows.slice(11, 1).select([*columns_of(table)]), "null")
        change(db[table])
        tx.commit()

    def row(key: Any, v: int) -> dict[str, Any]:
        parts = key if isinstance(key, tuple) else (key,)
        return {**dict(zip(columns_of(table), parts, strict=True)), "v": v}

    committed(lambda t: t.upsert(row(beyond, 100), "null"))
    committed(lambda t: t.delete([keys[6], keys[2]]))
    with pytest.raises(st.ConflictError):
        committed(lambda t: t.upsert(row(inside, 100), "null"))
    with pytest.raises(st.ConflictError):
        committed(lambda t: t.delete([inside]))
    if given:
        db[table].upsert(row(inside, 1), "null")
        committed(lambda t: t.upsert(row(inside, 2), "null"))
    db[table].truncate()
    db[table].upsert(whole)


def test_a_base_without_runs_is_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableKeys, "cover", lambda _, pin, *__, **___: pin)
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", {"id": "int64", "v": "int64"}, "id")
        table.upsert([{"id": n, "v": n} for n in range(5)])
        db.checkpoint()
        db.merge()
        assert table.to_arrow(["v"], "id = 3 AND v < 9").to_pylist() == [{"v": 3}]
        (levels,) = db._core.state().view.levels.values()
        assert levels.base._index is None  # a filter builds none


def test_times_beyond_python_s_are_read_by_the_keys_that_a_filter_names(tmp_path: Path) -> None:
    with st.connect(tmp_path / "db", background=False) as db:
        table = db.create_table("t", {"id": "int64", "at": pa.timestamp("s")}, "id")
        beyond = pa.array([1, 2**55], pa.int64()).view(pa.timestamp("s"))
        table.upsert(pa.table({"id": [1, 2], "at": beyond}))
        for _ in range(2):
            found = table.to_arrow(["at"], "id = 2 AND at IS NOT NULL")
            assert found["at"].cast(pa.int64()).to_pylist() == [2**55]
            db.checkpoint()
            db.merge()
