"""A default is what a new row has where it leaves the column out; a null that is given stays one.

It is a part of the schema, so that it holds for each way in which rows come. A column that is added
with one has it in all rows of before, at once, whatever level has them.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import siltstone as st

Give = Callable[[Any, dict[str, Any]], object]

DAY = dt.datetime(2026, 1, 2, 3)  # noqa: DTZ001 - the column has no zone
VALUES: dict[str, tuple[object, str]] = {
    "int8": (-5, "-5"),
    "uint64": (2**64 - 1, "18446744073709551615"),
    "float16": (1.5, "1.5"),
    "float32": (0.25, "0.25"),
    "float64": (-math.inf, "-inf"),
    "bool": (True, "true"),
    "string": ('it\'s\n"so"', 'it\'s\n"so"'),
    "large_string": ("", ""),
    "binary": (b"\0\xff", "00ff"),
    "fixed_size_binary[2]": (b"ab", "6162"),
    "uuid": (uuid.UUID(int=7), "0" * 31 + "7"),
    "date32": (dt.date(2026, 1, 2), "2026-01-02"),
    "date64": (dt.date(2026, 1, 2), "2026-01-02"),
    "time32[s]": (dt.time(1, 2, 3), "01:02:03"),
    "time64[ns]": (dt.time(1, 2, 3, 4), "01:02:03.000004000"),
    "timestamp[us]": (DAY, "2026-01-02 03:00:00.000000"),
    "timestamp[ms, tz=UTC]": (
        dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC),
        "2026-01-02 03:00:00.000Z",
    ),
    "duration[ms]": (dt.timedelta(seconds=2), "2000"),
    "decimal128(10, 2)": (Decimal("1.20"), "1.20"),
    "decimal256(60, 2)": (Decimal("-1.20"), "-1.20"),
}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as made:
        yield made


def rows_of(db: st.Store, table: str = "t") -> list[dict[str, Any]]:
    return sorted(db[table].to_arrow().to_pylist(), key=lambda row: row["id"])


def settled(db: st.Store, level: str) -> None:
    """Bring the rows to a level: `memory`, `history` or `base`."""
    if level != "memory":
        db.checkpoint()
    if level == "base":
        db.checkpoint()
        db.merge()


LEVELS = pytest.mark.parametrize("level", ["memory", "history", "base"])

WAYS: dict[str, Give] = {
    "insert a dict": lambda table, row: table.insert(row),
    "insert dicts": lambda table, row: table.insert([row]),
    "insert Arrow": lambda table, row: table.insert(pa.Table.from_pylist([row])),
    "upsert and keep": lambda table, row: table.upsert(row, missing="keep"),
    "upsert dicts and keep": lambda table, row: table.upsert([row], missing="keep"),
    "upsert Arrow and keep": lambda t, row: t.upsert(pa.Table.from_pylist([row]), missing="keep"),
    "upsert whole rows": lambda table, row: table.upsert(row, missing="null"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_new_row_has_the_defaults_of_what_it_leaves_out(db: st.Store, way: str) -> None:
    columns = {"id": "int64", "n": "int32 not null", "s": "string", "x": "float64"}
    table = db.create_table("t", columns, "id", defaults={"n": 3, "s": "new"})
    WAYS[way](table, {"id": 1})
    with db.transaction() as tx:
        WAYS[way](tx["t"], {"id": 2, "s": "given"})
    assert rows_of(db) == [
        {"id": 1, "n": 3, "s": "new", "x": None},
        {"id": 2, "n": 3, "s": "given", "x": None},
    ]


@pytest.mark.parametrize("way", WAYS)
def test_a_null_that_is_given_is_no_default(db: st.Store, way: str) -> None:
    columns = {"id": "int64", "n": "int32", "s": "string"}
    table = db.create_table("t", columns, "id", defaults={"n": 3})
    row = {"id": 1, "n": None}
    if "Arrow" in way:
        table.insert(pa.table({"id": [1], "n": pa.array([None], pa.int32())}))
    else:
        WAYS[way](table, row)
    assert rows_of(db) == [{**row, "s": None}]


def test_a_row_that_exists_keeps_what_is_left_out(db: st.Store) -> None:
    table = db.create_table(
        "t", {"id": "int64", "n": "int32", "s": "string"}, "id", defaults={"n": 3}
    )
    table.insert({"id": 1, "n": 8})
    table.upsert({"id": 1, "s": "a"}, missing="keep")
    table.update(1, s="b")
    assert rows_of(db) == [{"id": 1, "n": 8, "s": "b"}]


def test_an_upsert_of_whole_rows_wants_columns_with_defaults_too(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64", "n": "int32"}, "id", defaults={"n": 3})
    with pytest.raises(st.SchemaMismatchError, match="no column 'n'"):
        table.upsert({"id": 1})
    assert rows_of(db) == []


def test_rows_of_a_table_without_a_key_have_defaults(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64", "n": "int32 not null"}, defaults={"n": 3})
    table.append({"id": 1})
    table.append(pa.table({"id": [2]}))
    table.overwrite([*rows_of(db), {"id": 3}])
    assert rows_of(db) == [{"id": n, "n": 3} for n in (1, 2, 3)]


@pytest.mark.parametrize("key", ["id", ()])
def test_rows_of_a_bulk_commit_have_defaults(db: st.Store, key: str) -> None:
    columns = {"id": "int64", "n": "int32 not null"}
    db.create_table("t", columns, key, defaults={"n": 3})
    for start in (0, 5):  # the first of a table is its base, others are loads
        stage = db.stage("t", missing="null") if key else db.stage("t")
        piece = stage.run(pa.table({"id": range(start, start + 3)}))
        with db.transaction() as tx:
            tx.attach(stage, [piece])
    db.checkpoint()
    db.merge()
    assert {row["n"] for row in rows_of(db)} == {3}
    assert db["t"].count() == 6


def test_a_bulk_commit_that_keeps_gives_new_rows_the_default(db: st.Store) -> None:
    table = db.create_table(
        "t", {"id": "int64", "n": "int32", "s": "string"}, "id", defaults={"n": 3}
    )
    table.insert({"id": 1, "n": 8})
    stage = db.stage("t", missing="keep")
    with db.transaction() as tx:
        tx.attach(stage, [stage.run(pa.table({"id": [1, 2], "s": ["a", "b"]}))])
    assert rows_of(db) == [{"id": 1, "n": 8, "s": "a"}, {"id": 2, "n": 3, "s": "b"}]


@pytest.mark.parametrize("kind", VALUES)
def test_each_scalar_type_has_defaults(db: st.Store, kind: str) -> None:
    value, text = VALUES[kind]
    table = db.create_table("t", {"id": "int64", "v": kind}, "id", defaults={"v": value})
    assert (table.schema.field("v").metadata or {})[b"siltstone:default"] == text.encode()
    table.insert({"id": 1})
    table.insert(pa.table({"id": [2]}))
    table.add_column("w", kind, value)
    table.insert({"id": 3, "v": None, "w": None})
    nothing = {"id": 3, "v": None, "w": None}
    has = [{"id": n, "v": value, "w": value} for n in (1, 2)]
    for level in ("memory", "history", "base"):
        settled(db, level)
        assert [*map(table.get, (1, 2, 3))] == [*has, nothing]
        assert rows_of(db) == [*has, nothing]


def test_the_defaults_go_with_the_schema_into_another_table(db: st.Store) -> None:
    one = db.create_table(
        "one", {"id": "int64", "d": "date"}, "id", defaults={"d": dt.date(2026, 1, 2)}
    )
    other = db.create_table("other", one.schema, "id")
    other.insert({"id": 1})
    assert rows_of(db, "other") == [{"id": 1, "d": dt.date(2026, 1, 2)}]
    rows_alone = db.create_table("rows", data=one.to_arrow())  # rows are no definition
    assert rows_alone.schema.field("d").metadata is None


def test_a_default_outlives_its_store(tmp_path: Path) -> None:
    for n in range(3):
        with st.connect(tmp_path / "s") as db:
            if not n:
                db.create_table("t", {"id": "int64", "n": "int32"}, "id", defaults={"n": 3})
            db["t"].insert({"id": n})
            if n == 1:
                db.checkpoint()
                db.merge()
            assert rows_of(db) == [{"id": i, "n": 3} for i in range(n + 1)]


# a column that is added


@LEVELS
def test_an_added_column_has_its_default_in_the_rows_of_before(db: st.Store, level: str) -> None:
    table = db.create_table("t", {"id": "int64", "s": "string"}, "id")
    table.insert([{"id": n, "s": str(n)} for n in range(6)])
    settled(db, level)
    before = db.seq
    table.add_column("n", "int32 not null", 7)
    table.delete(0)
    table.update(1, n=1)
    table.insert([{"id": 6}, {"id": 7, "n": 2}])
    want = [1, 7, 7, 7, 7, 7, 2]
    for later in ("memory", "history", "base"):
        settled(db, later)
        assert [row["n"] for row in rows_of(db)] == want
        assert table.get(2) == {"id": 2, "s": "2", "n": 7}
        assert [row["n"] for row in table.get_many([1, 5, 7]).to_pylist()] == [1, 7, 2]
        assert table.count(filter="n = 7") == 5
        assert db.sql("select count(*), sum(n) from t where n > 1").fetchall() == [(6, 37)]
        assert [r["id"] for r in table.scan(["id"], filter="n = 7").read_all().to_pylist()] != []
    with db.snapshot(seq=before) as past:
        assert past["t"].schema.names == ["id", "s"]
        assert past["t"].get(3) == {"id": 3, "s": "3"}
    assert db.verify(deep=True).findings == ()


@LEVELS
def test_a_null_that_is_given_beside_an_added_column_stays(db: st.Store, level: str) -> None:
    table = db.create_table("t", {"id": "int64"}, "id", data=[{"id": 1}, {"id": 2}])
    settled(db, level)
    table.add_column("n", "int32", 7)
    table.update(1, n=None)
    table.insert({"id": 3, "n": None})
    for later in ("memory", "history", "base"):
        settled(db, later)
        assert [row["n"] for row in rows_of(db)] == [None, 7, None]
        assert table.count(filter="n is null") == 2


def test_several_columns_are_added_and_dropped_between_levels(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64"}, "id", data=[{"id": 1}])
    db.checkpoint()
    db.merge()
    table.add_column("a", "int32", 1)
    table.insert({"id": 2})
    db.checkpoint()
    table.add_column("b", "string", "b")
    table.rename_column("a", "c")
    table.insert({"id": 3, "c": None})
    table.add_column("a", "int64")
    table.drop_column("b")
    table.add_column("b", "string", "again")
    want = [
        {"id": 1, "c": 1, "a": None, "b": "again"},
        {"id": 2, "c": 1, "a": None, "b": "again"},
        {"id": 3, "c": None, "a": None, "b": "again"},
    ]
    assert rows_of(db) == want
    db.checkpoint()
    db.merge()
    assert rows_of(db) == want
    table.alter_column("c", default=5)
    table.insert({"id": 4})
    assert rows_of(db) == [*want, {"id": 4, "c": 5, "a": None, "b": "again"}]


def test_a_load_from_before_a_column_is_merged_with_its_default(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64", "s": "string"}, "id")
    table.insert({"id": -1, "s": "x"})
    db.checkpoint()
    db.merge()
    stage = db.stage("t", missing="null")
    piece = stage.run(pa.table({"id": range(2000), "s": ["y"] * 2000}))
    with db.transaction() as tx:
        tx.attach(stage, [piece])
    table.add_column("n", "int32", 7)
    assert table.count(filter="n = 7") == 2001
    db.checkpoint()
    db.merge()
    assert table.count(filter="n = 7") == 2001


def test_rows_staged_before_a_column_came_have_its_default(db: st.Store) -> None:
    db.create_table("t", {"id": "int64"}, "id")
    stage = db.stage("t", missing="null")
    piece = stage.run(pa.table({"id": [1]}))
    db["t"].add_column("n", "int32", 7)
    with db.transaction() as tx:
        tx.attach(stage, [piece])
    assert rows_of(db) == [{"id": 1, "n": 7}]


def test_a_transaction_from_before_a_column_commits_its_default(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64"}, "id")
    few, many = db.transaction(), db.transaction()
    few["t"].insert({"id": 1})
    many["t"].insert(pa.table({"id": range(10, 9000)}))
    table.add_column("n", "int32 not null", 7)
    few.commit()
    many.commit()
    assert {row["n"] for row in rows_of(db)} == {7}


def test_an_append_to_a_plain_table_conflicts_with_a_column_that_has_a_default(
    db: st.Store,
) -> None:
    table = db.create_table("t", {"id": "int64"}, data=[{"id": 1}])
    tx = db.transaction()
    tx["t"].append({"id": 2})
    table.add_column("n", "int32", 7)
    with pytest.raises(st.ConflictError):
        tx.commit()
    table.append([{"id": 2}, {"id": 3, "n": None}])
    assert rows_of(db) == [{"id": 1, "n": 7}, {"id": 2, "n": 7}, {"id": 3, "n": None}]


def test_rows_of_a_plain_table_staged_before_a_column_with_a_default_are_refused(
    db: st.Store,
) -> None:
    db.create_table("t", {"id": "int64"}, data=[{"id": 1}])
    stage = db.stage("t")
    piece = stage.run(pa.table({"id": [2]}))
    db["t"].add_column("n", "int32", 7)
    for overwrite in (False, True):
        with (
            db.transaction() as tx,
            pytest.raises(st.SchemaMismatchError, match="stage them again"),
        ):
            tx.attach(stage, [piece], overwrite=overwrite)
    assert rows_of(db) == [{"id": 1, "n": 7}]


def test_the_feed_shows_old_rows_with_the_default_and_deletes_with_none(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64"}, "id", data=[{"id": 1}, {"id": 2}])
    table.delete(1)
    table.add_column("n", "int32", 7)
    want = [
        {"_seq": 1, "_op": "upsert", "id": 1, "n": 7},
        {"_seq": 1, "_op": "upsert", "id": 2, "n": 7},
        {"_seq": 2, "_op": "delete", "id": 1, "n": None},
    ]
    for level in ("memory", "history", "base"):
        settled(db, level)
        assert db.changes(0)["t"].read_all().to_pylist() == want
        tasks = db.change_tasks("t", 0, db.seq)
        assert [row for task in tasks for b in task.read() for row in b.to_pylist()] == want


def test_what_another_table_of_the_name_lacks_has_no_initial_value(db: st.Store) -> None:
    db.create_table("t", {"id": "int64"}, "id", data=[{"id": 1}])
    since = db.seq
    db.drop_table("t")
    db.create_table("t", {"id": "int64"}, "id", data=[{"id": 1}]).add_column("n", "int32", 7)
    found = db.changes(since)["t"].read_all().to_pylist()
    assert [(row["_op"], row["n"]) for row in found] == [("delete", None), ("upsert", 7)]


def test_an_index_knows_the_rows_of_before(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64"}, "id", data=[{"id": n} for n in range(50)])
    db.checkpoint()
    db.merge()
    table.add_column("n", "int32", 7)
    table.create_index("n")
    table.insert([{"id": 50, "n": 6}, {"id": 51, "n": None}])
    first = table.scan(["id", "n"], order_by="n", limit=2).read_all().to_pylist()
    assert first == [{"id": 50, "n": 6}, {"id": 0, "n": 7}]
    db.checkpoint()
    db.merge()
    assert table.scan(["id", "n"], order_by="n", limit=2).read_all().to_pylist() == first
    assert table.count(filter="n = 7") == 50


@LEVELS
def test_a_search_for_words_finds_the_rows_of_before(db: st.Store, level: str) -> None:
    table = db.create_table("t", {"id": "int64"}, "id", data=[{"id": n} for n in range(5)])
    settled(db, level)
    table.add_column("w", "string", "hello world")
    table.insert([{"id": 5, "w": "hello"}, {"id": 6, "w": None}])
    table.create_index("w", "fts", build=False)
    for later in ("memory", "history", "base"):
        settled(db, later)
        found = table.search("hello", column="w", k=100).to_arrow().to_pylist()
        assert sorted(row["id"] for row in found) == [0, 1, 2, 3, 4, 5]


# what is refused


@pytest.mark.parametrize(
    ("columns", "defaults", "error", "match"),
    [
        ({"id": "int64", "n": "int32"}, {"n": "x"}, st.SchemaMismatchError, "int32, not str 'x'"),
        ({"id": "int64", "n": "int8"}, {"n": 128}, st.SchemaMismatchError, "is int8, not int 128"),
        ({"id": "int64", "n": "int8"}, {"m": 1}, st.SchemaMismatchError, "no column 'm'"),
        ({"id": "int64"}, {"id": 1}, st.RequestError, "part of the key"),
        ({"id": "int64", "v": "list<int64>"}, {"v": [1]}, st.RequestError, "it is no scalar"),
        ({"id": "int64", "v": "vector(float32, 2)"}, {"v": [1, 2]}, st.RequestError, "no scalar"),
        ({"id": "int64", "s": "string"}, {"s": "x" * 1025}, st.RequestError, "at most 1024"),
        ({"id": "int64", "s": "string"}, {"s": "\ud800"}, st.SchemaMismatchError, "not str"),
        ({"id": "int64", "s": "string"}, ["s"], st.RequestError, "must be a dict"),
    ],
)  # fmt: skip
def test_a_default_that_cannot_be_is_refused(
    db: st.Store, columns: Any, defaults: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        db.create_table("t", columns, "id", defaults=defaults)
    assert db.tables() == []


def test_a_text_in_the_metadata_that_is_no_value_is_refused(db: st.Store) -> None:
    field = pa.field("n", pa.int32(), metadata={"siltstone:default": "many"})
    with pytest.raises(st.SchemaMismatchError, match="default of column 'n' is int32, not 'many'"):
        db.create_table("t", pa.schema([field]))


def test_many_long_defaults_of_one_table_are_refused(db: st.Store) -> None:
    columns = {f"c{n}": "string" for n in range(100)}
    with pytest.raises(st.RequestError, match="at most 65536 bytes"):
        db.create_table("t", columns, defaults=dict.fromkeys(columns, "x" * 1000))


def test_a_column_of_not_null_needs_a_default(db: st.Store) -> None:
    keyed = db.create_table("keyed", {"id": "int64"}, "id", data=[{"id": 1}])
    with pytest.raises(st.RequestError, match="or give a default"):
        keyed.add_column("n", "int32 not null")
    plain = db.create_table("plain", {"id": "int64"})
    with pytest.raises(st.RequestError, match="or give a default"):
        plain.add_column("n", "int32 not null")
    with pytest.raises(st.SchemaMismatchError, match="not str 'x'"):
        plain.add_column("n", "int32", "x")
    assert keyed.schema.names == plain.schema.names == ["id"]


def test_a_table_that_exists_with_another_default_is_another_one(db: st.Store) -> None:
    columns = {"id": "int64", "n": "int32"}
    db.create_table("t", columns, "id", defaults={"n": 3})
    db.create_table("t", columns, "id", exist_ok=True)
    db.create_table("t", columns, "id", defaults={"n": 3}, exist_ok=True)
    with pytest.raises(st.SchemaMismatchError, match="its 'n' has the default '3', not '4'"):
        db.create_table("t", columns, "id", defaults={"n": 4}, exist_ok=True)
