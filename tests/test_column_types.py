"""A column of any type gives back what was written, at every level of a store and every door."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import siltstone as st
from siltstone.errors import RequestError, SchemaMismatchError
from siltstone.formats.types.extensions import storage_type, wrapped

Row = dict[str, object]
INT32 = some.integers(-(1 << 31), (1 << 31) - 1)
MANY = some.none() | some.lists(some.none() | INT32, max_size=3)
SPANS = some.timedeltas(dt.timedelta(days=-100_000), dt.timedelta(days=100_000))
KINDS: dict[str, tuple[pa.DataType, some.SearchStrategy[object]]] = {
    "uid": (pa.uuid(), some.uuids()),
    "code": (pa.binary(3), some.binary(min_size=3, max_size=3)),
    "many": (pa.large_list(pa.int32()), MANY),
    "pairs": (
        pa.map_(pa.string(), pa.int32()),
        some.dictionaries(some.text(max_size=3), some.none() | INT32, max_size=3),
    ),
    "span": (pa.duration("us"), SPANS),
    "seconds": (pa.duration("s"), some.integers(-9, 9).map(lambda n: dt.timedelta(seconds=n))),
    "day": (pa.date64(), some.dates()),
    "sum": (pa.decimal256(70, 2), some.integers(-(10**69), 10**69).map(lambda n: money(n, 2))),
    "small": (pa.decimal256(9, 0), some.integers(-9, 9).map(lambda n: money(n, 0))),
    "square": (
        pa.fixed_shape_tensor(pa.float32(), [2, 2]),
        some.lists(some.floats(width=32, allow_nan=False), min_size=4, max_size=4),
    ),
    "inside": (
        pa.struct([("span", pa.duration("ms")), ("pairs", pa.map_(pa.int32(), pa.date64()))]),
        some.fixed_dictionaries(
            {
                "span": some.integers(-9, 9).map(lambda n: dt.timedelta(milliseconds=n)),
                "pairs": some.none() | some.dictionaries(INT32, some.dates(), max_size=2),
            }
        ),
    ),
}
KEYED = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in KINDS.items())])


def money(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


rows_of_any = some.lists(
    some.fixed_dictionaries({name: some.none() | values for name, (_, values) in KINDS.items()}),
    min_size=1,
    max_size=6,
)


def as_read(row: Row) -> Row:
    """Return a row as Arrow gives it back: a mapping is a list of pairs."""
    return {name: _as_read(value) for name, value in row.items()}


def _as_read(value: object) -> object:
    if not isinstance(value, dict):
        return value
    if "span" in value:
        return as_read(value)
    return list(value.items())


def connect(path: Path) -> st.Store:
    return st.connect(path, background=False, retention="1000w")


def found(store: st.Store, name: str = "t") -> dict[object, Row]:
    return {row["id"]: row for row in store[name].to_arrow().to_pylist()}


def through_its_life(path: Path, table: str, expected: dict[object, Row]) -> None:
    """Look at a table from the log, history, base, after a restart, and in a restored backup."""
    with connect(path) as store:  # the log is replayed
        assert found(store, table) == expected
        store.checkpoint()
        assert found(store, table) == expected
        store.merge()
        store.optimize()
        assert found(store, table) == expected
        assert store.verify(deep=True).is_sound
        store.vacuum(dry_run=False, grace_s=-1e9)
        assert found(store, table) == expected
        store.backup(path.with_name("backup"), incremental=True)
    with st.connect(path, read_only=True) as store:
        assert found(store, table) == expected


@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows_of_any, some.booleans(), some.booleans())
def test_what_was_written_is_read_at_every_level(
    tmp_path_factory: pytest.TempPathFactory, given_rows: list[Row], as_arrow: bool, is_keyed: bool
) -> None:
    path = tmp_path_factory.mktemp("types") / "s"
    rows = [{"id": n, **row} for n, row in enumerate(given_rows)]
    expected = {row["id"]: as_read(row) for row in rows}
    with connect(path) as store:
        table = store.create_table("t", KEYED, primary_key="id" if is_keyed else ())
        write = table.upsert if is_keyed else table.append
        write(rows)
        assert table.schema.types == KEYED.types
        assert found(store) == expected
        if as_arrow:
            more = table.to_arrow()
            write(more.set_column(0, KEYED.field(0), pc.add(more["id"], 100)))
            expected |= {n + 100: {**expected[n], "id": n + 100} for n in range(len(rows))}
        if is_keyed:
            assert table.get(0) == expected[0]
    through_its_life(path, "t", expected)
    st.restore(path.with_name("backup"), path.with_name("restored"))
    with connect(path.with_name("restored")) as store:
        assert found(store) == expected


EXAMPLES: dict[str, object] = {
    "uid": UUID(int=7),
    "code": b"abc",
    "many": [1, None],
    "pairs": [("a", 1)],
    "span": dt.timedelta(seconds=1),
    "seconds": dt.timedelta(seconds=1),
    "day": dt.date(2026, 1, 2),
    "sum": Decimal("1.50"),
    "small": Decimal(7),
    "square": [1.0, 2.0, 3.0, 4.0],
    "inside": {"span": dt.timedelta(milliseconds=1), "pairs": [(1, dt.date(2026, 1, 2))]},
}


@pytest.mark.parametrize("is_keyed", [False, True], ids=["plain", "keyed"])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_parts_of_arrow_data_with_nulls_are_taken_as_they_are(
    tmp_path: Path, name: str, is_keyed: bool
) -> None:
    values = [EXAMPLES[name] if n % 3 else None for n in range(20)]
    kind = KINDS[name][0]
    whole = pa.table({"id": range(20), name: wrapped(pa.array(values, storage_type(kind)), kind)})
    with connect(tmp_path / "s") as store:
        table = store.create_table("t", whole.schema, primary_key="id" if is_keyed else ())
        write = table.upsert if is_keyed else table.append
        write(whole.slice(3, 5))
        write(whole.slice(8).to_reader(max_chunksize=4))
        table.delete_where("id = 9")
        wanted = [row for row in whole.slice(3).to_pylist() if row["id"] != 9]
        for step in (lambda: None, store.checkpoint, store.merge):
            step()
            assert table.to_arrow().sort_by("id").to_pylist() == wanted


def key_values(name: str) -> list[object]:
    return [UUID(int=n) for n in range(5)] if name == "uid" else [b"%03d" % n for n in range(5)]


@pytest.mark.parametrize("name", ["uid", "code"])
def test_a_key_may_be_a_uuid_or_a_binary_of_one_size(tmp_path: Path, name: str) -> None:
    keys = key_values(name)
    with connect(tmp_path / "s") as store:
        schema = pa.schema([(name, KINDS[name][0]), ("v", pa.int64())])
        table = store.create_table("t", schema, primary_key=name)
        table.upsert([{name: key, "v": n} for n, key in enumerate(keys)])
        for _ in range(2):
            assert table.get(keys[2]) == {name: keys[2], "v": 2}
            store.checkpoint()
            store.merge()
            store.optimize()
        table.delete([keys[0]])
        table.update(keys[1], v=10)
        with pytest.raises(st.DuplicateKeyError):
            table.insert({name: keys[1], "v": 0})
        assert {*table.to_arrow()["v"].to_pylist()} == {2, 3, 4, 10}
        assert [change["v"] for change in store.changes()["t"].read_all().to_pylist()]


FILLED: Row = {
    "id": 1, "uid": UUID(int=7), "code": b"abc", "many": [1], "pairs": {"a": 1},
    "span": dt.timedelta(seconds=90), "seconds": dt.timedelta(seconds=5),
    "day": dt.date(2026, 1, 2),
    "sum": Decimal("3.50"), "small": Decimal(4), "square": np.ones((2, 2), "f4"),
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> st.Store:
    store = connect(tmp_path / "s")
    store.create_table("t", KEYED, primary_key="id").upsert([FILLED, {"id": 2}], "null")
    plain = KEYED.append(pa.field("doc", pa.json_())).remove(KEYED.get_field_index("sum"))
    plain = plain.remove(plain.get_field_index("small"))
    filled = {name: value for name, value in FILLED.items() if name in plain.names}
    store.create_table("p", plain).append([{**filled, "doc": '{"a":1}'}, {"id": 2}])
    return store


@pytest.mark.parametrize(
    "text",
    [
        "uid = '00000000-0000-0000-0000-000000000007'",
        "uid IN ('00000000-0000-0000-0000-000000000007')",
        "uid > X'00000000000000000000000000000006'",
        "uid IS NOT NULL",
        "code = X'616263'",
        "code < X'616264'",
        "day = DATE '2026-01-02'",
        "day BETWEEN '2026-01-01' AND '2026-01-02'",
        "span > seconds",
        "sum > 3.25",
        "sum = 3.5 AND small = 4",
        "many IS NOT NULL AND pairs IS NOT NULL AND square IS NOT NULL",
    ],
)
def test_filters_compare_what_has_an_order(store: st.Store, text: str) -> None:
    with store:
        for _ in range(2):
            assert store["t"].to_arrow(["id"], text)["id"].to_pylist() == [1]
            store.checkpoint()
            store.merge()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("uid = 'seven'", "'seven' in the filter is not a UUID"),
        ("square = square", "cannot compare"),
        ("pairs = pairs", "cannot compare"),
        ("span = 'P1D'", r"cannot compare span \(duration\[us\]\)"),
    ],
)
def test_a_filter_that_compares_what_has_none_is_refused_by_name(
    store: st.Store, text: str, why: str
) -> None:
    with store, pytest.raises(RequestError, match=why):
        store["t"].to_arrow(["id"], text)


def test_arrow_filters_compare_durations(store: st.Store) -> None:
    with store:
        later = pc.field("span") > pa.scalar(dt.timedelta(seconds=80), pa.duration("us"))
        assert store["t"].to_arrow(["id"], later)["id"].to_pylist() == [1]


def rows_of(result: Any) -> pa.Table:
    return pa.table(result)


def test_duckdb_reads_every_type_that_it_has(store: st.Store) -> None:
    with store:
        for name, where in {
            "uid": "uid = '00000000-0000-0000-0000-000000000007'",
            "code": "code = 'abc'::BLOB",
            "many": "many[1] = 1",
            "pairs": "pairs['a'] = 1",
            "span": "span > INTERVAL 80 SECOND",
            "day": "day = DATE '2026-01-02'",
            "square": "square[1] = 1",
            "doc": "doc->>'$.a' = '1'",
        }.items():
            assert rows_of(store.sql(f"SELECT id FROM p WHERE {where}"))["id"].to_pylist() == [1]
            assert rows_of(store.sql(f"SELECT {name} FROM p ORDER BY id")).num_rows == 2
        with pytest.raises(RequestError, match=r"column 'sum' has type decimal256\(70, 2\), which"):
            store.sql("SELECT id FROM t")


def test_frames_have_every_type_that_they_know(store: st.Store) -> None:
    with store:
        frame = store["t"].to_pandas().set_index("id")
        assert frame.loc[1, "uid"] == UUID(int=7)
        assert frame.loc[1, "pairs"] == [("a", 1)]
        polars = store["p"].to_polars()
        assert isinstance(polars, pl.DataFrame)
        assert polars["span"].to_list()[0] == dt.timedelta(seconds=90)
        with pytest.raises(
            RequestError, match=r"'sum' has type decimal256.* which Polars does not"
        ):
            store["t"].to_polars()
        assert store["t"].to_polars(["id", "day"]).height == 2


def test_json_comes_back_as_lance_spells_it_and_is_checked_before(store: st.Store) -> None:
    with store:
        assert store["p"].to_arrow(["doc"])["doc"].to_pylist() == ['{"a":1}', None]
        for rows in ([{"id": 3, "doc": "{"}], pa.table({"id": [3], "doc": ["{"]})):
            with pytest.raises(SchemaMismatchError, match="'doc' is"):
                store["p"].append(rows)
        assert store["p"].count() == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("uid", b"short"), ("uid", "no uuid"), ("uid", 7),
        ("code", b"ab"), ("code", b"abcd"), ("code", "abc"),
        ("many", 1), ("many", ["a"]),
        ("pairs", {"a": "b"}), ("pairs", {None: 1}), ("pairs", [("a",)]), ("pairs", "a"),
        ("pairs", [("a", 1), ("b", 2), ("a", 1)]),
        ("span", 5), ("span", "5"), ("span", np.datetime64("NaT")),
        ("seconds", dt.timedelta(milliseconds=1)),
        ("day", dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), ("day", 5),
        ("small", Decimal("0.5")), ("small", Decimal(10**9)), ("sum", 1.5),
        ("square", [1.0]), ("square", np.ones((4, 1), "f4")), ("square", [[1, 2], [3]]),
        ("square", "abcd"), ("inside", {"span": 5}), ("inside", {"other": 1}),
        ("inside", {"pairs": [(1, None), (1, None)]}), ("sum", Decimal(10) ** 68),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_names_its_column(
    store: st.Store, name: str, value: object
) -> None:
    with store:
        with pytest.raises(SchemaMismatchError, match=f"column '{name}' is"):
            store["t"].upsert({"id": 9, name: value}, "null")
        assert store["t"].count() == 2


def test_arrow_values_are_cast_inside_a_family_and_never_changed(store: st.Store) -> None:
    with store:
        rows = pa.table(
            {
                "id": pa.array([5]),
                "uid": pa.array([UUID(int=5).bytes], pa.binary()),
                "code": pa.array([b"xyz"], pa.large_binary()),
                "many": pa.array([[1]], pa.list_(pa.int8())),
                "pairs": pa.array([[("a", 1)]], pa.map_(pa.large_string(), pa.int8())),
                "span": pa.array([5], pa.duration("s")),
                "day": pa.array([dt.date(2026, 1, 2)], pa.date32()),
                "sum": pa.array([Decimal("1.5")], pa.decimal128(5, 1)),
                "square": pa.array([[1, 2, 3, 4]], pa.list_(pa.float32(), 4)),
            }
        )
        store["t"].upsert(rows, "null")
        row = store["t"].get(5)
        assert row is not None
        assert (row["uid"], row["code"], row["pairs"]) == (UUID(int=5), b"xyz", [("a", 1)])
        assert (row["span"], row["sum"]) == (dt.timedelta(seconds=5), Decimal("1.50"))
        assert math.prod(cast_list(row["square"])) == 24
        for name, bad in {
            "uid": pa.array([b"short"], pa.binary()),
            "code": pa.array([b"long"], pa.binary(4)),
            "seconds": pa.array([1], pa.duration("ms")),
            "square": pa.array([[1, 2, 3]], pa.list_(pa.float32(), 3)),
            "pairs": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())),
        }.items():
            with pytest.raises(SchemaMismatchError, match=f"column '{name}' is"):
                store["t"].upsert(pa.table({"id": pa.array([6]), name: bad}), "null")


def cast_list(value: object) -> list[float]:
    assert isinstance(value, list)
    return value


BEYOND = {
    "span": pa.array([1 << 62], pa.duration("s")),
    "day": pa.array([86_400_000 * 10**8]).cast(pa.date64()),
    "old_day": pa.array([1 << 30], pa.int32()).cast(pa.date32()),
    "moment": pa.array([-(1 << 60)]).cast(pa.timestamp("s")),
    "days": pa.array([[(1, 86_400_000 * 10**8)]], pa.map_(pa.int32(), pa.int64())).cast(
        pa.map_(pa.int32(), pa.date64())
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_a_value_beyond_those_of_python_is_arrow_data_at_every_level(
    tmp_path: Path, name: str
) -> None:
    key = pa.field("id", pa.int64(), nullable=False)
    rows = pa.table([pa.array([1]), BEYOND[name]], pa.schema([key, (name, BEYOND[name].type)]))
    with connect(tmp_path / "s") as store:
        table = store.create_table("t", rows.schema, primary_key="id")
        table.upsert(rows)
        for _ in range(2):
            assert table.to_arrow().equals(rows)
            assert table.to_arrow(filter="id = 1").equals(rows)
            assert table.get_many([1]).equals(rows)
            with pytest.raises(RequestError, match=r"beyond those of Python.*get_many"):
                table.get(1)
            assert store.verify(deep=True).is_sound
            store.checkpoint()
            store.merge()
        table.upsert({"id": 1, name: None})
        assert table.get(1) == {"id": 1, name: None}


TWICE = pa.array([[], [("a", 1)], None, [("a", 1), ("b", 2), ("a", 3)]], KINDS["pairs"][0])


@pytest.mark.parametrize("is_keyed", [True, False])
def test_a_map_has_each_key_once(tmp_path: Path, is_keyed: bool) -> None:
    kind = pa.map_(pa.struct([("x", pa.int32())]), pa.int32())
    given: dict[str, pa.Array[Any]] = {
        "pairs": TWICE,
        "listed": pa.ListArray.from_arrays([0, 0, 3, 3, 4], TWICE),
        "held": pa.StructArray.from_arrays([TWICE], ["pairs"]),
        "odd": pa.array([[], None, [({"x": 1}, 1)], [({"x": 1}, 1), ({"x": 1}, 2)]], kind),
    }
    with connect(tmp_path / "s") as store:
        schema = pa.schema([("id", pa.int64()), *((n, a.type) for n, a in given.items())])
        table = store.create_table("t", schema, primary_key="id" if is_keyed else ())
        write = table.insert if is_keyed else table.append
        for name, column in given.items():
            with pytest.raises(SchemaMismatchError, match=f"a map in '{name}.*' has a key twice"):
                write(pa.table({"id": range(4), name: column}))
            assert table.count() == 0
        whole = pa.table({"id": range(4), **given})
        write(whole.slice(1, 2))  # of the maps between others, with nulls among them
        assert table.to_arrow().sort_by("id").to_pylist() == whole.slice(1, 2).to_pylist()


def deep(times: int) -> pa.DataType:
    kind: pa.DataType = pa.int32()
    for n in range(times):
        kind = pa.list_(kind) if n % 2 else pa.struct([("x", kind)])
    return kind


def test_a_type_may_be_nested_32_times(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as store:
        for times in (33, 200):
            with pytest.raises(RequestError, match="column 'x' is nested more than 32 times"):
                store.create_table("t", pa.schema([("x", deep(times))]))
        plain = store.create_table("p", pa.schema([("x", deep(32))]))
        with pytest.raises(RequestError, match="column 'y' is nested more than 32 times"):
            plain.add_column("y", deep(33))
        keyed = store.create_table("k", pa.schema([("id", pa.int64()), ("x", deep(32))]), "id")
        value: object = 7
        for n in range(32):
            value = [value] if n % 2 else {"x": value}
        plain.append({"x": value})
        keyed.upsert({"id": 1, "x": value})
        for _ in range(2):
            assert plain.to_arrow()["x"].to_pylist() == [value]
            assert keyed.get(1) == {"id": 1, "x": value}
            store.checkpoint()
            store.merge()
    with connect(tmp_path / "s") as store:
        assert store["k"].get(1) == {"id": 1, "x": value}
        assert store.verify(deep=True).is_sound


def test_columns_of_every_type_are_added_renamed_and_dropped(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as store:
        for name, key in (("t", "id"), ("p", ())):
            table = store.create_table(name, {"id": "int64"}, primary_key=key)
            (table.upsert if key else table.append)([{"id": 1}])
            store.checkpoint()
            for column, (kind, _) in KINDS.items():
                table.add_column(column, kind)
            (table.insert if key else table.append)([FILLED | {"id": 2}])
            store.checkpoint()
            store.merge()
            table.rename_column("uid", "other")
            table.drop_column("span")
            assert found(store, name)[1]["other"] is None
            assert found(store, name)[2]["other"] == UUID(int=7)
            assert found(store, name)[2]["pairs"] == [("a", 1)]
        with pytest.raises(RequestError, match="'doc' of a table with a primary key"):
            store["t"].add_column("doc", "json")
        assert store.verify(deep=True).is_sound


def test_a_refused_table_is_not_listed(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as store:
        with pytest.raises(RequestError, match=r"column 'x' cannot have type dictionary"):
            store.create_table("t", pa.schema([("x", pa.dictionary(pa.int32(), pa.string()))]))
        assert store.tables() == []
