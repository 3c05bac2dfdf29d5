"""Columns are found by name on every way into a table, and odd but right data is kept whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import siltstone as st
from tests.unchanged import MANY, connect, contents, refused

SCHEMA = {"id": "int64", "name": "string", "x": "float64", "note": "string"}
LOAD_ROWS = 300_000  # with names of 100 bytes: above 32 MiB, where a load goes straight to base


@pytest.fixture
def store(tmp_path: Path) -> Iterator[st.Store]:
    with connect(tmp_path / "shop") as store:
        store.create_table("keyed", SCHEMA, primary_key="id")
        store.create_table("plain", SCHEMA)
        yield store


def shuffled(rows: int, *, wide: bool = False) -> pa.Table:
    """Return rows without `note`, the columns in another order, names of other widths."""
    ids = pa.array(range(rows), pa.int32())
    names = pa.array([f"{at:100d}" if wide else f"n{at}" for at in range(rows)], pa.large_string())
    return pa.table({"x": pa.array(range(rows), pa.float64()), "name": names, "id": ids})


def transactional(write: str, table: str, *more: str) -> Callable[[st.Store, object], object]:
    def run(store: st.Store, rows: object) -> None:
        with store.transaction() as tx:
            getattr(tx[table], write)(rows, *more)

    return run


WAYS: dict[str, tuple[str, Callable[[st.Store, object], object]]] = {
    "upsert": ("keyed", lambda s, rows: s["keyed"].upsert(rows, "null")),
    "insert": ("keyed", lambda s, rows: s["keyed"].insert(rows)),
    "upsert in a transaction": ("keyed", transactional("upsert", "keyed", "null")),
    "insert in a transaction": ("keyed", transactional("insert", "keyed")),
    "append": ("plain", lambda s, rows: s["plain"].append(rows)),
    "overwrite": ("plain", lambda s, rows: s["plain"].overwrite(rows)),
    "append in a transaction": ("plain", transactional("append", "plain")),
    "overwrite in a transaction": ("plain", transactional("overwrite", "plain")),
}
FORMS: dict[str, Callable[[pa.Table], object]] = {
    "dicts": lambda table: table.to_pylist(),
    "a table": lambda table: table,
    "a batch": lambda table: table.combine_chunks().to_batches()[0],
    "a reader": lambda table: table.to_reader(max_chunksize=100),
    "a dataframe": lambda table: table.to_pandas(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
def test_columns_out_of_order_land_by_name_and_missing_ones_are_null(
    store: st.Store, way: str, form: str
) -> None:
    table, write = WAYS[way]
    for rows in (3, MANY):
        given = shuffled(rows)
        if way.startswith(("insert", "append")):
            store[table].truncate()
        write(store, FORMS[form](given))
        found = store[table].to_arrow().sort_by("id")
        assert found["id"].to_pylist() == list(range(rows))
        assert found["name"].to_pylist() == [f"n{at}" for at in range(rows)]
        assert found["x"].to_pylist() == [float(at) for at in range(rows)]
        assert found["note"].null_count == rows


@pytest.mark.parametrize("way", WAYS)
def test_an_extra_column_is_refused_on_every_way_in(store: st.Store, way: str) -> None:
    write = WAYS[way][1]
    write(store, shuffled(2))
    for rows in (3, MANY):
        extra = shuffled(rows).append_column("zz", pa.array(range(rows)))
        for form in FORMS.values():
            with refused(store, st.SchemaMismatchError, match="zz"):
                write(store, form(extra))


def test_a_bulk_load_takes_columns_by_name_too(store: st.Store) -> None:
    given = shuffled(LOAD_ROWS, wide=True)
    with refused(store, st.SchemaMismatchError, match="zz"):
        store["keyed"].upsert(given.append_column("zz", given["x"]), "null")
    with refused(store, st.SchemaMismatchError, match="'id' may not be null"):
        store["keyed"].upsert(given.drop_columns(["id"]), "null")
    doubled = pa.concat_tables([given, given.slice(7, 1)])
    with refused(store, st.DuplicateKeyError, match=r"\[7\]"):
        store["keyed"].insert(doubled)
    assert store["keyed"].upsert(given, "null").rows == LOAD_ROWS
    assert store["keyed"].get(123_456) == {
        "id": 123_456, "name": f"{123_456:100d}", "x": 123_456.0, "note": None,
    }  # fmt: skip
    assert store["keyed"].count("note is null") == LOAD_ROWS
    again = given.set_column(0, "x", pa.array([-1.0] * LOAD_ROWS))
    assert store["keyed"].upsert(again, "null").rows == LOAD_ROWS  # now over rows that live
    assert store["keyed"].count("x = -1 and note is null") == LOAD_ROWS
    assert store["keyed"].get(5)["name"] == f"{5:100d}"


EMPTY = {
    "no dict": [],
    "no row": pa.table({"id": pa.array([], pa.int64())}),
    "no column": pa.table({}),
    "no batch": pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), []),
    "an empty iterator": iter(()),
}


@pytest.mark.parametrize("way", ["upsert", "insert", "append"])
@pytest.mark.parametrize("rows", ["no dict", "no row", "no column"])
def test_no_rows_are_no_commit(store: st.Store, way: str, rows: str) -> None:
    before = contents(store)
    WAYS[way][1](store, EMPTY[rows])
    assert contents(store) == before


@pytest.mark.parametrize("missing", ["refuse", "keep", "null"])
@pytest.mark.parametrize("rows", ["no dict", "no column"])
def test_nothing_is_missing_where_nothing_is_given(
    store: st.Store, missing: Literal["refuse", "keep", "null"], rows: str
) -> None:
    before = contents(store)
    assert store["keyed"].upsert(EMPTY[rows], missing).rows == 0
    with store.transaction() as tx:
        tx["keyed"].upsert(EMPTY[rows], missing)
    assert contents(store) == before


def test_a_batch_that_lacks_columns_is_refused_also_without_rows(store: st.Store) -> None:
    for rows in (EMPTY["no row"], EMPTY["no batch"]):
        with refused(store, st.SchemaMismatchError, match="no column"):
            store["keyed"].upsert(rows)


def test_no_rows_overwrite_all_rows(store: st.Store) -> None:
    store["plain"].append({"id": 1})
    assert store["plain"].overwrite([]).rows == 0
    assert store["plain"].count() == 0


def test_a_value_of_16_mib_is_kept_at_every_level(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as store:
        table = store.create_table("t", {"id": "int64", "b": "binary"}, primary_key="id")
        big = bytes(range(256)) * (1 << 16)
        table.upsert({"id": 1, "b": big})
        table.upsert(pa.table({"id": [2], "b": [big[::-1]]}))
        assert table.get(1) == {"id": 1, "b": big}
    with connect(tmp_path / "s") as store:
        for step in (lambda: None, store.checkpoint, store.merge):
            step()
            assert store["t"].get(1) == {"id": 1, "b": big}
            assert store["t"].get(2) == {"id": 2, "b": big[::-1]}


def test_a_table_of_100_columns_lives_through_all_levels(tmp_path: Path) -> None:
    columns = {"id": "int64"} | {f"column {at}": ("int64", "string")[at % 2] for at in range(99)}
    row = {"id": 7} | {f"column {at}": (at, f"{at}")[at % 2] for at in range(99)}
    with connect(tmp_path / "s") as store:
        table = store.create_table("t", columns, primary_key="id")
        table.upsert(dict(reversed(row.items())))
        table.insert(pa.table({"id": pa.array(range(100, 100 + MANY))}))
        for step in (lambda: None, store.checkpoint, store.merge):
            step()
            assert table.get(7) == row
            assert table.to_arrow(filter="id = 7").to_pylist() == [row]
            assert table.count('"column 98" is null') == MANY


def test_names_that_are_allowed_reach_the_disk_and_come_back(tmp_path: Path) -> None:
    columns = ["a/b", "x y", "é☃", "CASE", "case", "'", '"', "x" * 128, "\n", "select", "c1", "%"]
    names = ["a", "A", "a.b", "0", "-", "x" * 128, "CON", "a_b"]
    row = {"id": 1} | dict.fromkeys(columns, "v")
    with connect(tmp_path / "s") as store:
        for name in names:
            table = store.create_table(
                name, {"id": "int64"} | dict.fromkeys(columns, "string"), primary_key="id"
            )
            table.upsert(row)
        plain = store.create_table("plain", dict.fromkeys(row, "string"))
        plain.append(dict.fromkeys(row, "v"))
        store.checkpoint()
        store.merge()
    with connect(tmp_path / "s") as store:
        assert store.tables() == sorted([*names, "plain"])
        for name in names:
            assert store[name].get(1) == row
            assert store[name].to_arrow().to_pylist() == [row]
        assert store["plain"].to_arrow().to_pylist() == [dict.fromkeys(row, "v")]
