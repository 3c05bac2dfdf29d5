"""A column gets another type: what was there is there in the new type, and the past in the old one.

A wider type is one of what is shown: rows of before are turned when they are read, until a flush
and a merge have written them in it. Any other type is a new column in the place of the old one,
with a value for each row, written in the same commit.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import siltstone as st
from siltstone import admin
from siltstone.formats.rows import from_storage_values
from siltstone.formats.schema import parse_type
from siltstone.formats.types.casts import UncastError, cast_column, may_cast
from siltstone.formats.types.widening import in_type, widens
from siltstone.local.tables import LocalTable

DAY = dt.date(2026, 1, 2)
NOON = dt.datetime(2026, 1, 2, 12)  # noqa: DTZ001 - the column has no zone
UTC = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
WIDER: dict[tuple[str, str], tuple[object, object, object]] = {
    ("int8", "int16"): (-128, -128, 300),
    ("int16", "int64"): (-5, -5, 2**40),
    ("uint8", "int32"): (255, 255, -1),
    ("uint32", "uint64"): (7, 7, 2**64 - 1),
    ("int32", "float64"): (2**31 - 1, float(2**31 - 1), 0.5),
    ("int32", "decimal128(12, 2)"): (7, Decimal("7.00"), Decimal("0.25")),
    ("uint64", "decimal256(40, 1)"): (2**64 - 1, Decimal(2**64 - 1), Decimal("0.1")),
    ("float16", "float32"): (0.5, 0.5, 2.0**100),
    ("float32", "float64"): (0.5, 0.5, 0.1),
    ("decimal128(5, 2)", "decimal128(20, 4)"): (Decimal("1.25"), Decimal("1.2500"), Decimal("1e9")),
    ("decimal128(5, 2)", "decimal256(60, 2)"): (Decimal("1.25"), Decimal("1.25"), Decimal("1e40")),
    ("date32", "timestamp[s]"): (DAY, dt.datetime(2026, 1, 2), NOON),  # noqa: DTZ001
    ("date32", "timestamp[ms]"): (DAY, dt.datetime(2026, 1, 2), NOON),  # noqa: DTZ001
    ("date32", "date64"): (DAY, DAY, DAY),
    ("time32[s]", "time64[us]"): (dt.time(1), dt.time(1), dt.time(1, microsecond=5)),
    ("timestamp[us, tz=UTC]", "timestamp[us, tz=+02:00]"): (UTC, UTC, UTC),
    ("string", "large_string"): ("a", "a", "b"),
    ("binary", "large_binary"): (b"a", b"a", b"b"),
    ("fixed_size_binary[2]", "binary"): (b"ab", b"ab", b"abc"),
}  # fmt: skip
OTHERS: dict[tuple[str, str], tuple[object, object]] = {
    ("string", "int32"): ("12", 12),
    ("string", "float64"): ("0.5", 0.5),
    ("string", "date32"): ("2026-01-02", DAY),
    ("string", "timestamp[us]"): ("2026-01-02 12:00:00", NOON),
    ("string", "bool"): ("true", True),
    ("string", "decimal128(10, 2)"): ("1.5", Decimal("1.50")),
    ("string", "binary"): ("é", "é".encode()),
    ("binary", "string"): ("é".encode(), "é"),
    ("int64", "string"): (12, "12"),
    ("int64", "int8"): (12, 12),
    ("int64", "float64"): (2**53, float(2**53)),
    ("int64", "decimal128(10, 2)"): (12, Decimal("12.00")),
    ("float64", "int64"): (12.0, 12),
    ("float64", "float32"): (0.5, 0.5),
    ("float64", "decimal128(10, 2)"): (0.1, Decimal("0.10")),
    ("decimal128(10, 2)", "decimal128(5, 1)"): (Decimal("1.50"), Decimal("1.5")),
    ("decimal128(10, 2)", "float64"): (Decimal("1.50"), 1.5),
    ("timestamp[us]", "timestamp[s]"): (NOON, NOON),
    ("timestamp[s]", "timestamp[us]"): (NOON, NOON),
    ("date32", "timestamp[us]"): (DAY, dt.datetime(2026, 1, 2)),  # noqa: DTZ001
    ("timestamp[us]", "date32"): (dt.datetime(2026, 1, 2), DAY),  # noqa: DTZ001
    ("time64[us]", "time32[s]"): (dt.time(1), dt.time(1)),
    ("duration[us]", "duration[s]"): (dt.timedelta(seconds=2), dt.timedelta(seconds=2)),
    ("large_string", "string"): ("a", "a"),
}
UNFIT: dict[tuple[str, str], object] = {
    ("string", "int32"): "12x",
    ("string", "date32"): "tomorrow",
    ("binary", "string"): b"\xff",
    ("int64", "int8"): 128,
    ("int64", "float64"): 2**53 + 1,
    ("int64", "decimal128(4, 2)"): 100,
    ("float64", "int64"): 1.5,
    ("float64", "float32"): 0.1,
    ("float64", "decimal128(10, 1)"): 0.25,
    ("decimal128(10, 2)", "decimal128(10, 1)"): Decimal("1.25"),
    ("timestamp[us]", "timestamp[s]"): NOON.replace(microsecond=1),
    ("timestamp[us]", "date32"): NOON,
    ("duration[us]", "duration[s]"): dt.timedelta(microseconds=1),
}  # fmt: skip
NEVER = [
    ("int64", "bool"),
    ("int64", "timestamp[us]"),
    ("string", "uuid"),
    ("uuid", "string"),
    ("timestamp[us]", "timestamp[us, tz=UTC]"),
    ("timestamp[us, tz=UTC]", "date32"),
    ("date32", "int32"),
    ("duration[s]", "int64"),
]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as made:
        yield made


def made(db: st.Store, old: str, value: object, key: str | tuple[()] = "id") -> st.Table:
    table = db.create_table("t", {"id": "int64", "c": old, "z": "string"}, key)
    for row in ({"id": 1, "c": value, "z": "a"}, {"id": 2, "c": None, "z": "b"}):
        put(table, row)
    return table


def put(table: Any, row: dict[str, Any]) -> None:
    """Write a new row, to a table with or without a key."""
    (table.insert if table.primary_key else table.append)(row)


def settled(db: st.Store, level: str) -> None:
    """Bring the rows to a level: `memory`, `history` or `base`."""
    if level != "memory":
        db.checkpoint()
    if level == "base":
        db.merge()


def attach(db: st.Store, stage: Any, piece: Any) -> None:
    with db.transaction() as tx:
        tx.attach(stage, [piece])


def column_of(rows: Any) -> dict[int, object]:
    return {row["id"]: row["c"] for row in rows.to_arrow().to_pylist()}


LEVELS = pytest.mark.parametrize("level", ["memory", "history", "base"])
PAIRS = [pytest.param(*pair, id=" to ".join(pair)) for pair in WIDER]


@LEVELS
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_wider_type_shows_what_was_there(db: st.Store, old: str, new: str, level: str) -> None:
    before, after, later = WIDER[old, new]
    table = made(db, old, before)
    settled(db, level)
    seq = db.seq
    table.alter_column("c", type=new)
    table.insert({"id": 3, "c": later, "z": "c"})
    for settle in (lambda: None, db.checkpoint, db.merge, db.checkpoint):
        settle()
        assert column_of(table) == {1: after, 2: None, 3: later}
        assert table.get(1) == {"id": 1, "c": after, "z": "a"}
        assert table.schema.names == ["id", "c", "z"]
        assert table.schema.field("c").type == parse_type(new)
        past = db.snapshot(seq=seq)["t"]
        assert column_of(past) == {1: before, 2: None}
        assert past.get(1) == {"id": 1, "c": before, "z": "a"}
        assert past.schema.field("c").type == parse_type(old)
    assert db.verify(deep=True).findings == ()


@pytest.mark.parametrize("key", ["id", ()])
@pytest.mark.parametrize(("old", "new"), [pytest.param(*p, id=" to ".join(p)) for p in OTHERS])
def test_another_type_is_written(db: st.Store, old: str, new: str, key: str | tuple[()]) -> None:
    before, after = OTHERS[old, new]
    table = made(db, old, before, key)
    seq = db.seq
    table.alter_column("c", type=new)
    for settle in (lambda: None, db.checkpoint, db.merge):
        settle()
        assert column_of(table) == {1: after, 2: None}
        assert table.schema.names == ["id", "c", "z"]
        assert table.schema.field("c").type == parse_type(new)
        assert column_of(db.snapshot(seq=seq)["t"]) == {1: before, 2: None}
    assert db.verify(deep=True).findings == ()


@pytest.mark.parametrize("key", ["id", ()])
@pytest.mark.parametrize(("old", "new"), [pytest.param(*p, id=" to ".join(p)) for p in UNFIT])
def test_a_value_that_the_type_lacks_is_refused_with_its_row(
    db: st.Store, old: str, new: str, key: str | tuple[()]
) -> None:
    table, seq = made(db, old, UNFIT[old, new], key), db.seq
    row = "'id': 1" if key else "'c': "
    with pytest.raises(st.SchemaMismatchError, match=f"column 'c' of 't' .*{row}.*change it"):
        table.alter_column("c", type=new)
    assert db.seq == seq
    assert table.schema.field("c").type == parse_type(old)


@pytest.mark.parametrize(("old", "new"), NEVER)
def test_a_type_that_no_value_becomes_is_refused_by_name(db: st.Store, old: str, new: str) -> None:
    table = made(db, old, None)
    with pytest.raises(st.RequestError, match="does not become"):
        table.alter_column("c", type=new)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("int64 not null", "nullable=False"),
        ("nothing", "unknown type"),
        (5, "a type must be"),
        (pa.list_(pa.int32()), "does not become"),
        ("blob", "does not become|cannot be a blob"),
    ],
)
def test_what_is_no_type_is_refused(db: st.Store, kind: object, why: str) -> None:
    table, seq = made(db, "int32", 5), db.seq
    with pytest.raises(st.RequestError, match=why):
        table.alter_column("c", type=kind)
    assert db.seq == seq


def test_the_type_of_the_key_stays(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int32", "v": "int32"}, "id")
    with pytest.raises(st.RequestError, match="'id' is part of the key, whose type stays"):
        table.alter_column("id", type="int64")


def test_its_own_type_changes_nothing(db: st.Store) -> None:
    table, seq = made(db, "int32", 5), db.seq
    assert table.alter_column("c", type="int32").seq == seq


def test_type_default_and_not_null_change_at_once(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64", "c": "string"}, "id", defaults={"c": "5"})
    table.insert({"id": 1})
    table.alter_column("c", type="int32", nullable=False)
    table.insert({"id": 2})
    assert column_of(table) == {1: 5, 2: 5}
    with pytest.raises(st.SchemaMismatchError, match="'c'"):
        table.insert({"id": 3, "c": None})


def test_a_default_is_one_of_the_new_type(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64", "c": "string"}, "id", defaults={"c": "five"})
    with pytest.raises(st.SchemaMismatchError, match="the default of column 'c' is 'five'"):
        table.alter_column("c", type="int32")
    table.alter_column("c", default="5.50")
    table.alter_column("c", type="decimal128(10, 3)")
    table.insert({"id": 1})
    assert column_of(table) == {1: Decimal("5.500")}


@LEVELS
def test_an_added_column_has_its_default_in_the_wider_type(db: st.Store, level: str) -> None:
    table = db.create_table("t", {"id": "int64"}, "id", data=[{"id": 1}])
    settled(db, level)
    table.add_column("c", "int32 not null", 7)
    table.alter_column("c", type="float64")
    table.insert({"id": 2})
    for settle in (lambda: None, db.checkpoint, db.merge):
        settle()
        assert column_of(table) == {1: 7.0, 2: 7.0}
    assert db.verify(deep=True).findings == ()


@LEVELS
def test_a_column_is_widened_again_and_again(db: st.Store, level: str) -> None:
    table = made(db, "int8", 5)
    seqs: list[tuple[int, object]] = [(db.seq, 5)]
    for kind, later in (("int16", 300), ("int32", 70_000), ("float64", 0.5), ("string", "x")):
        settled(db, level)
        table.alter_column("c", type=kind)
        table.insert({"id": 10 + len(seqs), "c": later, "z": None})
        seqs.append((db.seq, later))
    settled(db, level)
    assert column_of(table) == {1: "5", 2: None, 11: "300", 12: "70000", 13: "0.5", 14: "x"}
    for number, (seq, later) in enumerate(seqs[1:-1], start=1):
        assert column_of(db.snapshot(seq=seq)["t"])[10 + number] == later
        assert column_of(db.snapshot(seq=seq)["t"])[1] == 5
    assert db.verify(deep=True).findings == ()


def ids_of(table: st.Table, text: str) -> list[Any]:
    found: list[Any] = table.to_arrow(filter=text).column("id").to_pylist()
    return sorted(found)


FILTERS = ["c = 5", "c > 3000000000", "c is null", "c < 6 and z = 'a'", "c in (5, 3000000000)"]


@LEVELS
def test_filters_find_rows_in_the_wider_type(db: st.Store, level: str) -> None:
    table = db.create_table("t", {"id": "int64", "c": "int32", "z": "string"}, "id")
    rows = [{"id": n, "c": n % 100 or None, "z": "ab"[n % 2]} for n in range(20_000)]
    table.insert(rows)
    table.create_index("c")
    settled(db, level)
    table.alter_column("c", type="int64")
    table.insert({"id": 20_000, "c": 3_000_000_001, "z": "a"})
    everything = pa.Table.from_batches(table.scan())
    for settle in (lambda: None, db.checkpoint, db.merge, db.optimize):
        settle()
        for text in FILTERS:
            found = ids_of(table, text)
            with st.connect(db.path.parent / "other", background=False) as other:
                name = f"t{len(other.tables())}"
                plain = other.create_table(name, everything.schema, data=everything)
                assert found == ids_of(plain, text), text


@LEVELS
def test_pages_by_the_column_go_on_in_the_wider_type(db: st.Store, level: str) -> None:
    table = db.create_table("t", {"id": "int64", "c": "int32"}, "id")
    table.insert([{"id": n, "c": (n * 7) % 1_000} for n in range(1_000)])
    table.create_index("c")
    settled(db, level)
    table.alter_column("c", type="int64")
    table.insert({"id": 1_000, "c": -3_000_000_000})
    for settle in (lambda: None, db.checkpoint, db.merge, db.optimize):
        settle()
        for descending, wanted in ((False, [-3_000_000_000, 0, 1]), (True, [999, 998, 997])):
            table = cast("LocalTable", db["t"])
            page = table.scan_by(None, None, column="c", descending=descending, limit=3, likely=3)
            assert page.read_all().column("c").to_pylist() == wanted


def test_an_index_goes_on_with_the_wider_type(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64", "c": "int32"}, "id")
    table.insert([{"id": n, "c": n} for n in range(20_000)])
    table.create_index("c", name="by_c")
    db.checkpoint()
    db.merge()
    db.optimize()
    table.alter_column("c", type="int64")
    db.checkpoint()
    db.merge()
    db.optimize()
    assert [(i.name, i.column) for i in table.indexes()] == [("by_c", "c")]
    assert table.to_arrow(filter="c = 19000").num_rows == 1


def test_texts_are_found_in_the_larger_type(db: st.Store) -> None:
    table = made(db, "string", "a word")
    table.create_index("c", "fts")
    for settle in (db.checkpoint, db.merge, db.optimize):
        settle()
    table.alter_column("c", type="large_string")
    table.insert({"id": 3, "c": "another word", "z": None})
    for settle in (lambda: None, db.checkpoint, db.merge, db.optimize):
        settle()
        found = table.search("word", column="c", k=5).to_pylist()
        assert {row["id"]: row["c"] for row in found} == {1: "a word", 3: "another word"}


def test_the_feed_shows_old_rows_in_the_wider_type(db: st.Store) -> None:
    table = made(db, "int32", 5)
    table.delete(2)
    table.alter_column("c", type="int64")
    table.upsert({"id": 1, "c": 2**40, "z": "a"})
    for settle in (lambda: None, db.checkpoint, db.merge):
        settle()
        feed = db.changes(0)["t"].read_all()
        assert feed.schema.field("c").type == pa.int64()
        assert [(row["_op"], row["id"], row["c"]) for row in feed.to_pylist()] == [
            ("upsert", 1, 5),
            ("upsert", 2, None),
            ("delete", 2, None),
            ("upsert", 1, 2**40),
        ]
        tasks = db.change_tasks("t", 0)
        rows = [row for task in tasks for batch in task.read() for row in batch.to_pylist()]
        assert sorted(row["c"] for row in rows if row["c"]) == [5, 2**40]


@pytest.mark.parametrize(
    ("old", "new", "before", "later"),
    [
        ("fixed_size_binary[2]", "binary", b"ab", b"longer"),
        ("decimal128(5, 2)", "decimal256(60, 2)", Decimal("1.25"), Decimal("1e50")),
        ("int8", "int64", 5, 2**40),
    ],
)
def test_the_feed_of_before_is_read_beside_values_that_its_type_lacks(
    db: st.Store, old: str, new: str, before: object, later: object
) -> None:
    table = made(db, old, before)
    seq = db.seq
    table.alter_column("c", type=new)
    table.insert({"id": 3, "c": later, "z": None})
    db.checkpoint()
    tasks = db.change_tasks("t", 0, seq)
    rows = [row for task in tasks for batch in task.read() for row in batch.to_pylist()]
    assert {row["id"]: row["c"] for row in rows} == {1: before, 2: None}
    assert column_of(db.snapshot(seq=seq)["t"]) == {1: before, 2: None}


def test_the_feed_tells_of_each_row_that_another_type_writes(db: st.Store) -> None:
    table = made(db, "string", "5")
    seq = db.seq
    receipt = table.alter_column("c", type="int32")
    feed = db.changes(seq)["t"].read_all().to_pylist()
    assert [(row["_seq"], row["id"], row["c"]) for row in feed] == [
        (receipt.seq, 1, 5),
        (receipt.seq, 2, None),
    ]


def test_scan_tasks_read_the_wider_type(db: st.Store) -> None:
    table = made(db, "int32", 5)
    for settle in (db.checkpoint, db.merge):
        settle()
    table.update(2, c=6)
    db.checkpoint()
    table.alter_column("c", type="int64")
    table.insert({"id": 3, "c": 2**40, "z": None})
    tasks = db.snapshot().scan_tasks("t", filter="c >= 5")
    rows = [row for task in tasks for batch in task.read() for row in batch.to_pylist()]
    assert {row["id"]: row["c"] for row in rows} == {1: 5, 2: 6, 3: 2**40}


def test_sql_reads_the_wider_type_and_changes_types(db: st.Store) -> None:
    made(db, "int32", 5)
    db.checkpoint()
    db.merge()
    for text, kind in (
        ("alter table t alter column c type bigint", pa.int64()),
        ("alter table t alter c set data type decimal(20, 2)", pa.decimal128(20, 2)),
        ("ALTER TABLE t ALTER COLUMN c SET TYPE varchar", pa.string()),
    ):
        db.sql(text)
        assert db["t"].schema.field("c").type == kind
    assert db.sql("select c from t order by id").fetchall() == [("5.00",), (None,)]
    with db.transaction() as tx:
        tx.sql("alter table t alter column c type double")
        tx.sql("insert into t values (3, 0.5, 'c')")
    assert column_of(db["t"]) == {1: 5.0, 2: None, 3: 0.5}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("alter table t alter column c type bigint using c + 1", "USING is not offered"),
        ("alter table t alter column c type varchar collate nocase", "COLLATE is not offered"),
        ("alter table t alter column c type", "names a type|syntax"),
        ("alter table t alter column none type bigint", "none"),
        ("alter table t alter column id type varchar", "part of the key"),
    ],
)
def test_sql_refuses_what_is_no_change_of_a_type(db: st.Store, text: str, why: str) -> None:
    made(db, "int32", 5)
    with pytest.raises((st.RequestError, st.SchemaMismatchError), match=why):
        db.sql(text)


def test_the_log_says_it(db: st.Store) -> None:
    table = made(db, "int32", 5)
    table.alter_column("c", type="int64")
    table.alter_column("c", type="string")
    said = [change for entry in db.log() for change in entry.changes]
    assert said.count("set type of column t.c") == 2
    assert not [change for change in said if change.startswith(("add", "drop"))]


def test_a_diff_of_two_types_has_what_differs_alone(db: st.Store) -> None:
    table = made(db, "int32", 5)
    seq = db.seq
    table.alter_column("c", type="int64")
    assert db.diff(seq, db.seq).rows == 0
    table.update(1, c=2**40)
    rows = db.diff(seq, db.seq)["t"].to_pylist()
    assert [(row["_old"]["c"], row["_new"]["c"]) for row in rows] == [(5, 2**40)]
    back = db.diff(db.seq, seq)["t"].to_pylist()
    assert [(row["_old"]["c"], row["_new"]["c"]) for row in back] == [(2**40, 5)]


def test_rows_are_put_back_into_the_wider_type(db: st.Store) -> None:
    table = made(db, "int32", 5)
    seq = db.seq
    table.update(1, c=6)
    last = db.seq
    table.alter_column("c", type="float64")
    db.put_back("t", to=seq, until=last)
    assert column_of(table) == {1: 5.0, 2: None}
    table.alter_column("c", type="string")
    with pytest.raises(st.RequestError, match="columns of 't' are others"):
        db.put_back("t", to=seq, force=True)


# others


Write = Callable[[Any], object]
WRITES: dict[str, Write] = {
    "a row": lambda table: table.upsert({"id": 7, "c": 8, "z": None}),
    "rows": lambda table: table.upsert(pa.table({"id": [7], "c": pa.array([8], pa.int32()),
                                                 "z": ["a"]})),
    "a delete": lambda table: table.delete(1),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
def test_a_commit_from_before_is_brought_to_the_wider_type(db: st.Store, write: str) -> None:
    table = made(db, "int32", 5)
    with db.transaction() as tx:
        WRITES[write](tx["t"])
        table.alter_column("c", type="decimal128(12, 2)")
    found = {1: Decimal(5), 2: None, 7: Decimal(8)} if write != "a delete" else {2: None}
    for settle in (lambda: None, db.checkpoint, db.merge):
        settle()
        assert column_of(table) == found
        assert table.get(7) is None or table.get(7)["c"] == Decimal(8)  # type: ignore[index]


@pytest.mark.parametrize("write", WRITES)
def test_a_commit_from_before_conflicts_with_another_type(db: st.Store, write: str) -> None:
    table = made(db, "int32", 5)
    tx = db.transaction()
    WRITES[write](tx["t"])
    table.alter_column("c", type="string")
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert column_of(table) == {1: "5", 2: None}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_another_type_conflicts_with_what_was_written_since_it_read_the_rows(
    db: st.Store, write: str, isolation: Any
) -> None:
    table = made(db, "int32", 5)
    tx = db.transaction(isolation=isolation)
    tx["t"].alter_column("c", type="string")
    WRITES[write](table)
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert table.schema.field("c").type == pa.int32()


def test_a_serializable_scan_sees_values_that_the_old_type_lacks(db: st.Store) -> None:
    table = made(db, "int32", 5)
    tx = db.transaction(isolation="serializable")
    assert tx["t"].count(filter="c > 1000") == 0
    tx["t"].update(2, z="none is large")
    table.alter_column("c", type="int64")
    table.insert({"id": 3, "c": 2**40 + 1, "z": None})  # as an int32 it is 1
    with pytest.raises(st.ConflictError):
        tx.commit()


def test_a_wider_type_does_not_conflict_with_rows(db: st.Store) -> None:
    table = made(db, "int32", 5)
    with db.transaction() as tx:
        tx["t"].alter_column("c", type="int64")
        WRITES["a row"](table)
    assert column_of(table) == {1: 5, 2: None, 7: 8}
    assert table.schema.field("c").type == pa.int64()


@pytest.mark.parametrize("key", ["id", ()])
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_a_transaction_reads_and_writes_by_its_own_change(
    db: st.Store, kind: str, key: str | tuple[()]
) -> None:
    table = made(db, "int32", 5, key)
    later: Any = 2**40 if kind == "int64" else "x"
    with db.transaction() as tx:
        own = tx["t"]
        put(own, {"id": 3, "c": 9, "z": None})
        own.alter_column("c", type=kind)
        put(own, {"id": 4, "c": later, "z": None})
        shown: Any = str if kind == "string" else int
        found = {1: shown(5), 2: None, 3: shown(9), 4: later}
        assert column_of(own) == found
    assert column_of(table) == found


@pytest.mark.parametrize("rows", [3, 6_000])
def test_rows_that_were_staged_before_come_in_the_wider_type(db: st.Store, rows: int) -> None:
    table = made(db, "int32", 5)
    stage = db.stage("t")
    data = pa.table(
        {"id": range(10, 10 + rows), "c": pa.array([7] * rows, pa.int32()), "z": ["a"] * rows}
    )
    piece = stage.run(data)
    table.alter_column("c", type="int64")
    attach(db, stage, piece)
    for settle in (lambda: None, db.checkpoint, db.merge):
        settle()
        assert column_of(table) == {1: 5, 2: None, **dict.fromkeys(range(10, 10 + rows), 7)}
    assert table.to_arrow().schema.field("c").type == pa.int64()
    assert db.verify(deep=True).findings == ()


@pytest.mark.parametrize(("key", "kind"), [((), "int64"), ((), "string"), ("id", "string")])
def test_rows_that_were_staged_before_another_type_are_refused(
    db: st.Store, key: str | tuple[()], kind: str
) -> None:
    table = made(db, "int32", 5, key)
    stage = db.stage("t")
    piece = stage.run(pa.table({"id": [9], "c": pa.array([7], pa.int32()), "z": ["a"]}))
    table.alter_column("c", type=kind)
    with pytest.raises((st.SchemaMismatchError, st.ConflictError)):
        attach(db, stage, piece)
    assert len(column_of(table)) == 2


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_plain_rows_from_before_conflict(db: st.Store, kind: str) -> None:
    table = made(db, "int32", 5, ())
    tx = db.transaction()
    tx["t"].append({"id": 3, "c": 9, "z": None})
    table.alter_column("c", type=kind)
    with pytest.raises(st.ConflictError):
        tx.commit()
    assert len(column_of(table)) == 2


@pytest.mark.parametrize("key", ["id", ()])
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_a_type_outlives_a_reopen_and_a_backup(
    tmp_path: Path, kind: str, key: str | tuple[()]
) -> None:
    later: Any = 2**40 if kind == "int64" else "x"
    five: Any = 5 if kind == "int64" else "5"
    with st.connect(tmp_path / "s", background=False) as db:
        table = made(db, "int32", 5, key)
        db.checkpoint()
        table.alter_column("c", type=kind)
        put(table, {"id": 3, "c": later, "z": None})
        admin.backup_store(db.path, tmp_path / "b")
    admin.restore(tmp_path / "b", tmp_path / "r")
    for name in ("s", "r"):
        with st.connect(tmp_path / name, read_only=True) as reader:
            assert column_of(reader["t"]) == {1: five, 2: None, 3: later}
        with st.connect(tmp_path / name, background=False) as db:
            assert column_of(db["t"]) == {1: five, 2: None, 3: later}
            db.checkpoint()
            db.merge()
            assert column_of(db["t"]) == {1: five, 2: None, 3: later}
            assert db.verify(deep=True).findings == ()


def test_a_reader_in_another_process_follows_the_change(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = made(db, "int32", 5)
        with st.connect(tmp_path / "s", read_only=True) as reader:
            old = reader.snapshot()
            table.alter_column("c", type="int64")
            table.insert({"id": 3, "c": 2**40, "z": None})
            assert column_of(reader["t"]) == {1: 5, 2: None, 3: 2**40}
            assert column_of(old["t"]) == {1: 5, 2: None}
            table.alter_column("c", type="string")
            db.checkpoint()
            db.merge()
            assert column_of(reader["t"]) == {1: "5", 2: None, 3: str(2**40)}
            assert column_of(old["t"]) == {1: 5, 2: None}


def test_an_image_ends_with_the_type_that_it_has(db: st.Store) -> None:
    table = db.create_table("t", {"id": "int64", "c": "int32", "z": "int32"}, "id")
    table.insert([{"id": n, "c": n, "z": n} for n in range(5_000)])
    db.checkpoint()
    db.merge()
    table.update(1, c=-1)
    for kind, later in (("int32", 10_007), ("int64", 2**40)):
        table.alter_column("c", type=kind)
        table.insert({"id": later, "c": later, "z": 0})
        for _ in range(6):
            rows = table.to_arrow(columns=["c"])
            assert rows.schema.field("c").type == parse_type(kind)
            assert sum(rows.column("c").to_pylist()) == sum(column_of(table).values())  # type: ignore[arg-type]
            table.update(3, z=1)
    db.checkpoint()
    db.merge()
    assert column_of(table)[2**40] == 2**40


def test_a_damaged_file_is_not_written_anew(tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", {"id": "int64", "c": "int32"}, "id")
        table.insert([{"id": n, "c": n * n} for n in range(5_000)])
        db.checkpoint()
        db.merge()
    for file in (tmp_path / "s" / "tables").glob("t-*/base/data/*.lance"):
        data = bytearray(file.read_bytes())
        data[len(data) // 3] ^= 1
        file.write_bytes(data)
    with st.connect(tmp_path / "s", background=False) as db:
        db["t"].alter_column("c", type="int64")
        db.checkpoint()
        with pytest.raises(st.CorruptionError):
            db.merge()


# the rule


SCALARS = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "decimal128(5, 2)", "decimal128(38, 0)", "decimal256(60, 10)", "string",
    "large_string", "binary", "large_binary", "fixed_size_binary[2]", "date32", "date64",
    "time32[s]", "time32[ms]", "time64[us]", "time64[ns]", "timestamp[s]", "timestamp[ms]",
    "timestamp[us]", "timestamp[ns]", "timestamp[us, tz=UTC]", "timestamp[us, tz=+02:00]",
    "duration[s]", "duration[us]",
]  # fmt: skip


TEXTS = {
    "string": ["", "ä", None],
    "large_string": ["", "ä", None],
    "binary": [b"", b"\xff", None],
    "large_binary": [b"", b"\xff", None],
    "fixed_size_binary[2]": [b"\xff\x00", None],
    "bool": [True, False, None],
}
PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def ends_of(text: str) -> pa.Array:
    """Return the values of a type that are likeliest to be cut by another one, and null."""
    kind: Any = parse_type(text)
    if text in TEXTS:
        return pa.array(TEXTS[text], kind)
    if pa.types.is_decimal(kind):
        return from_storage_values([10**kind.precision - 1, -1, None], kind)
    if pa.types.is_floating(kind):
        return pa.array([0.1, -0.5, float("nan"), float("inf"), 65504.0, None]).cast(kind)
    bits = kind.bit_width
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if pa.types.is_unsigned_integer(kind):
        return pa.array([0, 2**bits - 1, None], kind)
    if pa.types.is_time(kind):
        low, high = 0, PER_DAY[kind.unit] - 1
    if text == "date64":
        low, high = 0, PER_DAY["ms"] * 2**31
    return pa.array([low, 0, high, None], getattr(pa, f"int{bits}")()).view(kind)


def same(one: pa.Array, other: pa.Array) -> bool:
    """Say whether two columns are equal; two NaN are."""
    if pa.types.is_floating(one.type):
        return str(one.to_pylist()) == str(other.to_pylist())
    return one.equals(other)


@pytest.mark.parametrize("old", SCALARS)
def test_each_value_comes_back_from_a_wider_type(old: str) -> None:
    kind = parse_type(old)
    values = ends_of(old)
    for wider in (each for each in map(parse_type, SCALARS) if widens(kind, each)):
        there = in_type(values, wider)
        assert there.type == wider
        assert same(in_type(there, kind), values), wider
        assert not widens(wider, kind) or pa.types.is_timestamp(kind)


@pytest.mark.parametrize("old", SCALARS)
def test_a_cast_loses_nothing_or_refuses(old: str) -> None:
    kind = parse_type(old)
    for wanted in (each for each in map(parse_type, SCALARS) if may_cast(kind, each)):
        for place in range(len(values := ends_of(old))):
            one = values.slice(place, 1)
            try:
                there = cast_column(one, wanted)
            except UncastError:
                continue
            assert there.type == wanted
            assert there.null_count == one.null_count
            if not (_is_text(wanted) or _is_text(kind)):
                assert same(cast_column(there, kind), one), (wanted, one)


def _is_text(kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def test_the_first_value_that_does_not_fit_is_named() -> None:
    for at, count in product([0, 1, 50, 99], [100]):
        values = pa.array([0.5 if n >= at else float(n) for n in range(count)])
        with pytest.raises(UncastError) as caught:
            cast_column(values, pa.int64())
        assert caught.value.place == at
