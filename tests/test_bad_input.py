"""A wrong name, column, value, key, filter or seq is refused with one sentence; nothing changes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import siltstone as st
from tests.unchanged import connect, refused


def short(value: object) -> str:
    return repr(value)[:40]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    """One store for all tests here: each must leave it as it was."""
    with connect(tmp_path_factory.mktemp("bad") / "shop") as store:
        people = store.create_table(
            "people", {"id": "int64", "name": "string", "spent": "float64"}, primary_key="id"
        )
        store.create_table(
            "visits",
            pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.date32(), nullable=False)]),
            primary_key="id",
        )
        store.create_table("routes", {"a": "string", "b": "int32"}, primary_key=["a", "b"])
        store.create_table("events", {"ts": "timestamp[us]", "what": "string"}).append(
            {"what": "open"}
        )
        people.upsert([{"id": at, "name": f"n{at}", "spent": 1.5} for at in range(4)])
        store.checkpoint()
        people.upsert({"id": 4, "name": "n4", "spent": -0.0})
        yield store


BAD_TABLE_NAMES = [
    "a/b", "..", "../x", "a\0b", "x" * 300, "", ".x", "_x", "x y", "é", "x\n", None, 7, b"x",
]  # fmt: skip
BAD_COLUMN_NAMES = [
    "..", "a.b", "a\0b", "x" * 300, "", "_seq", "_x", "a`b", "*", "\ud800", None, 7, b"x",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_TABLE_NAMES, ids=short)
def test_a_table_cannot_be_called_so(store: st.Store, name: str) -> None:
    with refused(store):
        store.create_table(name, {"id": "int64"})
    with refused(store):
        store.rename_table("people", name)
    for look in (store.__getitem__, store.drop_table):
        with refused(store, st.TableNotFoundError):
            look(name)


@pytest.mark.parametrize("name", BAD_COLUMN_NAMES, ids=short)
def test_a_column_cannot_be_called_so(store: st.Store, name: str) -> None:
    with refused(store):
        store.create_table("new", {name: "int64"})
    with refused(store):
        store["people"].add_column(name, "int64")
    with refused(store):
        store["people"].rename_column("spent", name)
    with refused(store):
        store["people"].drop_column(name)


def test_a_taken_name_says_so(store: st.Store) -> None:
    with refused(store, st.TableExistsError, match="'people' exists"):
        store.create_table("people", {"id": "int64"})
    with refused(store, st.TableExistsError, match="'events' exists"):
        store.rename_table("people", "events")
    with refused(store, match="'name' exists"):
        store["people"].add_column("name", "int64")
    with refused(store, match="'name' exists"):
        store["people"].rename_column("spent", "name")


@pytest.mark.parametrize(
    "schema",
    [
        {}, {"a": "nope"}, {"a": 7}, 7, "x", None, [],
        {"a": "decimal128(39, 2)"}, {"a": "vector(float32, 0)"}, {"a": "timestamp[us, tz=A/B]"},
        pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))]),
        pa.schema([("a", pa.month_day_nano_interval())]),
        pa.schema([("a", pa.null())]),
        pa.schema([("a", pa.list_(pa.string(), 2))]),
        pa.schema([("a", pa.int64()), ("a", pa.int64())]),
        pa.schema([("a", pa.struct([]))]),
        pa.schema([("a", pa.struct([("x", pa.int8()), ("x", pa.int8())]))]),
        pa.schema([("a", pa.struct([("x\0y", pa.int8())]))]),
        pa.schema([("a", pa.list_(pa.struct([("x", pa.struct([("\0", pa.int8())]))])))]),
    ],
    ids=short,
)  # fmt: skip
def test_a_table_cannot_have_this_schema(store: st.Store, schema: object) -> None:
    with refused(store):
        store.create_table("new", schema)


@pytest.mark.parametrize(
    "kind",
    ["float16", "float32", "float64", "time64[us]", "vector(float32, 2)", pa.list_(pa.int64())],
    ids=str,
)
def test_a_key_of_this_type_is_refused_by_its_name(store: st.Store, kind: object) -> None:
    with refused(store, match="'id'.* cannot be a key"):
        store.create_table("new", {"id": kind, "x": "int64"}, primary_key="id")


@pytest.mark.parametrize("key", ["zz", ["id", "id"], ["id", "zz"], 7, [7], [None], [[]]], ids=short)
def test_a_primary_key_names_columns_once(store: st.Store, key: list[str]) -> None:
    with refused(store):
        store.create_table("new", {"id": "int64"}, primary_key=key)


BAD_ROWS: dict[str, dict[object, object]] = {
    "an unknown column": {"id": 9, "zz": 1},
    "a column that is no text": {"id": 9, 7: 1},
    "a reserved column": {"id": 9, "_seq": 1},
    "a number as text": {"id": 9, "name": 5},
    "bytes as text": {"id": 9, "name": b"a"},
    "a list as text": {"id": 9, "name": ["a"]},
    "half a surrogate pair": {"id": 9, "name": "\ud800"},
    "text as a number": {"id": 9, "spent": "1.0"},
    "a bool as a number": {"id": 9, "spent": True},
    "a complex number": {"id": 9, "spent": 1j},
    "an integer that no float holds": {"id": 9, "spent": 10**400},
    "a decimal as a float": {"id": 9, "spent": Decimal(1)},
    "a null key": {"id": None, "name": "x"},
    "no key": {"name": "x"},
    "a text key": {"id": "9"},
    "a float key": {"id": 9.0},
    "a nan key": {"id": float("nan")},
    "a bool key": {"id": True},
    "a key out of range": {"id": 1 << 63},
    "a key of 5,000 digits": {"id": 10**5000},
}


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_one_bad_row_refuses_all_of_its_call(store: st.Store, row: dict[str, object]) -> None:
    people, good = store["people"], {"id": 50, "name": "good"}
    for write in (people.upsert, people.insert):
        for rows in (row, [row], [good, row], [good] * 600 + [row]):
            with refused(store, st.SchemaMismatchError):
                write(rows)


@pytest.mark.parametrize("row", BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_one_bad_row_that_is_not_caught_ends_its_transaction(
    store: st.Store, row: dict[str, object]
) -> None:
    with refused(store, st.SchemaMismatchError), store.transaction() as tx:
        tx["events"].append({"what": "lost"})
        tx["people"].upsert({"id": 60})
        tx["people"].upsert(row)


def test_a_bad_row_that_is_caught_leaves_the_transaction_as_it_was(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as store:
        table = store.create_table("t", {"id": "int64"}, primary_key="id")
        with store.transaction() as tx:
            tx["t"].upsert({"id": 1})
            with pytest.raises(st.SchemaMismatchError):
                tx["t"].upsert([{"id": 2}, {"id": "3"}])
            assert tx["t"].count() == 1
        assert table.to_arrow().to_pylist() == [{"id": 1}]


@pytest.mark.parametrize(
    "rows",
    [
        None,
        7,
        "abc",
        b"x",
        [1],
        [None],
        [[1]],
        SimpleNamespace(),
        [("id", 1)],
        np.array([1, 2]),
        float,
    ],
    ids=short,
)
def test_rows_are_dicts_or_arrow(store: st.Store, rows: object) -> None:
    for table in ("people", "events"):
        names = ("upsert", "insert") if table == "people" else ("append", "overwrite")
        for name in names:
            with refused(store):
                getattr(store[table], name)(rows)


def test_a_message_names_the_column_and_both_values(store: st.Store) -> None:
    with refused(store, match="column 'name' is string, not int 5"):
        store["people"].upsert({"id": 9, "name": 5})
    with refused(store, match="no column 'zz'; the columns are id, name, spent"):
        store["people"].upsert({"id": 9, "zz": 5})
    for row in ({"ID": 9}, [{"ID": 9}], pa.table({"ID": [9]})):
        with refused(store, match="no column 'ID'; did you mean 'id'"):
            store["people"].upsert(row)
    with refused(store, match="key column 'id' is int64, not str 'x'"):
        store["people"].get("x")
    with refused(store, match=r"people\[3\] exists already"):
        store["people"].insert({"id": 3})
    with refused(store, match="no table 'nobody'"):
        store.drop_table("nobody")


def test_a_nameless_index_of_pandas_is_no_column(store: st.Store) -> None:
    frame = pd.DataFrame({"id": [7, 8]}, index=[3, 5])
    for write in (store["people"].upsert, lambda rows: store.create_table("new", data=rows)):
        with refused(store, match="an index without a name"):
            write(frame)


def test_a_set_is_no_key_and_a_text_no_flag(store: st.Store) -> None:
    with refused(store, match="a primary key must be"):
        store.create_table("new", {"a": "int64", "b": "int64"}, primary_key=cast("Any", {"a", "b"}))
    for flags in ({"read_only": "yes"}, {"join": 1}):
        with refused(store, match="must be True or False; got"):
            st.connect(store.path, **cast("Any", flags))


def test_a_snapshot_before_a_table_says_its_seq(store: st.Store) -> None:
    with (
        store.snapshot(seq=1) as past,
        pytest.raises(
            st.TableNotFoundError, match=r"no table 'events'; the tables are people \(at seq 1\)"
        ),
    ):
        past["events"]


BAD_KEYS = [
    None, "x", 1.5, True, (1, 2), {"id": None}, {"x": 1}, {}, SimpleNamespace(), b"x", 1 << 64,
    pa.table({"zz": [1]}), pa.table({"id": ["a"]}), pa.table({"id": pa.array([None], pa.int64())}),
]  # fmt: skip


@pytest.mark.parametrize("key", BAD_KEYS, ids=short)
def test_a_key_of_another_kind_is_refused(store: st.Store, key: object) -> None:
    people = store["people"]
    for read in (people.get, people.get_many, lambda key: people.get_many([key])):
        with refused(store, st.SchemaMismatchError):
            read(key)
    for write in (people.delete, lambda key: people.update(key, spent=1.0)):
        with refused(store, st.SchemaMismatchError):
            write(key)


@pytest.mark.parametrize(
    "key", ["eu", ("eu",), ("eu", 1, 2), (1, "eu"), ("eu", None), {"a": "eu"}, ("eu", 1 << 31)]
)
def test_a_composite_key_has_all_its_parts_in_order(store: st.Store, key: object) -> None:
    for use in (store["routes"].get, store["routes"].delete):
        with refused(store, st.SchemaMismatchError):
            use(key)


def test_a_column_that_may_not_be_null_may_not_be_missing_either(store: st.Store) -> None:
    visits, one = store["visits"], pa.array([1], pa.int64())
    for rows in (
        {"id": 1}, {"id": 1, "day": None}, pa.table({"id": one}),
        pa.table({"id": one, "day": pa.nulls(1, pa.date32())}),
        pa.table({"id": pa.array(range(600)), "day": pa.nulls(600, pa.date32())}),
    ):  # fmt: skip
        for write in (
            partial(visits.upsert, missing="keep"), partial(visits.upsert, missing="null"),
            visits.insert,
        ):  # fmt: skip
            with refused(store, st.SchemaMismatchError, match="'day' may not be null"):
                write(rows)
        with refused(store, st.SchemaMismatchError, match="no column|'day' may not be null"):
            visits.upsert(rows)


@pytest.mark.parametrize("key", [1, 999], ids=["living", "absent"])
@pytest.mark.parametrize(
    "values", [{"spent": "x"}, {"name": 1}, {"zz": 1}, {"spent": 1.0, "name": b""}], ids=str
)
def test_an_update_that_does_not_fit_is_refused_whether_the_key_lives_or_not(
    store: st.Store, key: int, values: dict[str, object]
) -> None:
    people = store["people"]
    people.upsert({"id": 1, "name": "Ada", "spent": 1.0})
    seq = store.seq
    with pytest.raises(st.SchemaMismatchError):
        people.update(key, **values)
    with store.transaction() as tx, pytest.raises(st.SchemaMismatchError):
        tx["people"].update(key, **values)
    assert store.seq == seq


def test_an_update_of_an_absent_key_to_null_is_refused_where_a_null_may_not_be(
    store: st.Store,
) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("must", pa.int64(), nullable=False)])
    table = store.create_table("strict", schema, primary_key="id")
    with pytest.raises(st.SchemaMismatchError, match="'must' may not be null"):
        table.update(1, must=None)
    assert table.update(1, must=2).rows == 0


def test_an_update_of_a_wrong_column_or_value_is_refused(store: st.Store) -> None:
    people = store["people"]
    for key in (1, 1000):
        with refused(store, st.SchemaMismatchError, match="zz"):
            people.update(key, zz=1)
        with refused(store, match="are the key"):
            people.update(key, id=2)
    with refused(store, st.SchemaMismatchError, match="'spent' is double, not str 'x'"):
        people.update(1, spent="x")


def test_a_key_that_lives_or_comes_twice_cannot_be_inserted(store: st.Store) -> None:
    people = store["people"]
    for size in (2, 600):
        for rows in (
            [{"id": 100}] * size,
            pa.table({"id": pa.array([100] * size)}),
            [{"id": at} for at in range(4, 4 + size)],
            pa.table({"id": pa.array(range(4, 4 + size))}),
            pa.table({"id": pa.array(range(3 + size, 3, -1))}),
        ):
            with refused(store, st.DuplicateKeyError):
                people.insert(rows)


def test_keyed_and_plain_tables_refuse_each_others_calls(store: st.Store) -> None:
    people, events = store["people"], store["events"]
    for write in (people.append, people.overwrite):
        with refused(store, match="has a key"):
            write({"id": 1})
    for write in (events.upsert, events.insert):
        with refused(store, match="plain table"):
            write({"what": "x"})
    for use in (
        events.get,
        events.delete,
        events.get_many,
        lambda key: events.update(key, what=""),
    ):
        with refused(store, match="plain table"):
            use(1)


@pytest.mark.parametrize(
    "columns", [["zz"], "id", ["id", "id"], [7], 7, [None], ["_seq"]], ids=short
)
def test_unknown_or_double_columns_cannot_be_read(store: st.Store, columns: list[str]) -> None:
    for table in ("people", "events"):
        with refused(store):
            store[table].scan(columns)


@pytest.mark.parametrize(
    "text",
    [
        "zz = 1", "id =", "id = 'x'", "; drop table people", "id", "", 7, b"x", "select 1",
        "id = 1 limit 1", "name > 5", "x.y = 1", "id in ()", "1", "(select 1)", "random() < 2",
        "/*", "'", "id = \0",
    ],
    ids=short,
)  # fmt: skip
def test_a_filter_that_is_none_deletes_nothing(store: st.Store, text: str) -> None:
    for table in ("people", "events"):
        for use in (store[table].delete_where, store[table].count):
            with refused(store):
                use(text)


@pytest.mark.parametrize("limit", [-1, "x", 1.5, True])
def test_a_limit_is_a_count(store: st.Store, limit: int) -> None:
    with refused(store, match="limit"):
        store["people"].scan(limit=limit)


@pytest.mark.parametrize("seq", [-1, 99_999, 1 << 70])
def test_a_seq_that_is_not_kept_is_refused(store: st.Store, seq: int) -> None:
    with refused(store, st.SnapshotExpiredError, match=str(seq)):
        store.snapshot(seq=seq)
    with refused(store, st.SnapshotExpiredError, match=str(seq)):
        store.tag("a", seq)
    for changes in ({"since": seq}, {"until": seq}):
        with refused(store, match=str(seq)):
            store.changes(**cast("Any", changes))


@pytest.mark.parametrize("seq", ["x", 1.0, True])
def test_a_seq_is_an_integer(store: st.Store, seq: int) -> None:
    for use in (
        lambda: store.snapshot(seq=seq),
        lambda: store.tag("a", seq),
        lambda: store.changes(since=seq),
        lambda: store.changes(until=seq),
    ):
        with refused(store, match="a seq must be an integer"):
            use()


def test_moments_tags_and_ids_that_are_none_are_refused(store: st.Store) -> None:
    snapshot, outcome = store.snapshot, store.outcome
    bad: list[tuple[Callable[..., object], dict[str, object]]] = [
        *((snapshot, {"at": at}) for at in ("x", 7, "2020-13-01", dt.date(2020, 1, 1))),
        (snapshot, {"tag": "nope"}), (snapshot, {"tag": 7}), (snapshot, {"seq": 1, "tag": "x"}),
        *((store.tag, {"name": name}) for name in ("", 7, None, "x" * 300)),
        *((store.tag, {"name": "a", "lasts": lasts}) for lasts in (0, -1, "soon", True, 1 << 50)),
        (store.untag, {"name": "nope"}),
        *((outcome, {"transaction_id": i}) for i in ("x", None, 7, "", "1-", "1-1-1", "²-1")),
        *((store.claim, {"app": app}) for app in ("", 7, None, "x" * 300)),
        *((store.claim, {"app": "a", "holder": holder}) for holder in ("", 7, "x" * 65)),
        *((store.claim, {"app": "a", "holder": "h", "at": at}) for at in (-1, "1", True, 1 << 63)),
        (store.claim, {"app": "a", "at": 1}),
        *((store.claimed, {"app": app}) for app in ("", 7, None, "x" * 300)),
        (store.changes, {"tables": ["nope"]}), (store.changes, {"tables": ["events"]}),
        (store.merge, {"table": "nope"}), (store.run, {"work": len, "attempts": 0}),
        *((store.transaction, {"token": t}) for t in ("z", ("a", -1), ("a", "b"), ("", 1), (1, 1))),
        *((store.transaction, {"token": ("a", 1), "claim": c}) for c in ("x", -1, True)),
        (store.transaction, {"claim": 1}),
        (store.transaction, {"isolation": "loose"}), (store.transaction, {"durability": "maybe"}),
    ]  # fmt: skip
    for use, given in bad:
        with refused(store):
            use(**given)


@pytest.mark.parametrize(
    "statement",
    ["select * from nope", "selec", "drop table nope", "insert into people values (1)", "", 7,
     "select zz from people", "select 1; select 2", "select * from read_csv('/etc/passwd')",
     "update people set zz = 1", "drop view people", "delete from people; delete from people"],
)  # fmt: skip
def test_a_statement_that_does_not_fit_the_store_is_refused(
    store: st.Store, statement: str
) -> None:
    with refused(store, lines_max=10):  # DuckDB points at the place
        store.sql(statement)


@pytest.mark.parametrize(
    "given",
    [{"segment_bytes": 1}, {"nope": 1}, {"retention": "soon"}, {"verify": "never"},
     {"memory_bytes_max": "x"}, {"background": 7}],
    ids=short,
)  # fmt: skip
def test_an_option_that_is_none_creates_no_store(tmp_path: Path, given: dict) -> None:
    with pytest.raises(st.RequestError):
        st.connect(tmp_path / "new", **given)
    assert not (tmp_path / "new").exists()


def test_the_store_that_refused_all_this_still_works(store: st.Store) -> None:
    before = store["people"].to_arrow().sort_by("id")
    store.checkpoint()
    store.merge()
    assert store["people"].to_arrow().sort_by("id") == before
