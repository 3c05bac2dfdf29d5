"""Every door answers a filter as a scan does, whatever level the rows are in; see the matrix."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import siltstone as st
from siltstone.errors import RequestError
from tests.query import filter_tables, task_reader
from tests.query.filter_cases import Filter, scalars, texts
from tests.query.test_filter_matrix import ROWS, columns, kept
from tests.server.rest import Rest
from tests.server.stores import joined_to

TABLES = [name for name in filter_tables.TABLES if name != "indexed"]


def some(table: str) -> list[str]:
    """Return two SQL filters for each type."""
    return [list(texts(name))[at] for name in columns(table) for at in (0, -2)]


def some_of_arrow(table: str) -> list[pc.Expression]:
    found = [(name, scalars(name)[1]) for name in columns(table)]
    return [~(pc.field(name) == scalar) | (pc.field("id") < 1) for name, scalar in found]


def mixed(table: str) -> list[Filter]:
    return [*some(table), *some_of_arrow(table)]


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


@pytest.mark.parametrize("table", TABLES)
def test_a_count_a_dataset_and_a_snapshot_answer_as_a_scan(db: st.Store, table: str) -> None:
    with db.snapshot() as past:
        dataset = past[table].dataset()
        for wanted in mixed(table):
            right = kept(ROWS[table], wanted)
            assert db[table].count(wanted) == len(right), wanted
            assert ids(dataset.to_table(["id"], wanted)) == right, wanted
            assert ids(past[table].to_arrow(["id"], wanted)) == right, wanted


@pytest.mark.parametrize("table", TABLES)
def test_a_transaction_filters_with_its_own_writes_on_top(db: st.Store, table: str) -> None:
    with db.transaction() as tx:
        own = ROWS[table].slice(0, 3).set_column(0, "id", pa.array([100, 101, 102]))
        (tx[table].append if table in (*filter_tables.PLAIN, "plain_timed") else tx[table].upsert)(
            own.select([field.name for field in tx[table].schema])
        )
        rows = pa.concat_tables([ROWS[table], own])
        for wanted in mixed(table):
            assert ids(tx[table].to_arrow(["id"], wanted)) == kept(rows, wanted), wanted
        tx.rollback()


@pytest.mark.parametrize("table", TABLES)
def test_a_delete_takes_the_rows_that_a_scan_finds(db: st.Store, table: str) -> None:
    for wanted in some(table)[:: 3 if table == "base" else 7]:
        right = kept(ROWS[table], wanted)
        with db.transaction() as tx:
            assert tx[table].delete_where(wanted) == len(right), wanted
            assert not set(right) & set(ids(tx[table].to_arrow(["id"]))), wanted
            tx.rollback()


@pytest.mark.parametrize("table", TABLES)
def test_tasks_of_a_scan_read_the_same_rows_elsewhere(db: st.Store, table: str) -> None:
    with db.snapshot() as past:
        for wanted in mixed(table):
            tasks = pickle.loads(pickle.dumps(past.scan_tasks(table, ["id"], wanted)))
            found = [row for task in tasks for batch in task.read() for row in batch["id"].tolist()]
            assert sorted(found) == kept(ROWS[table], wanted), wanted


def test_a_task_is_read_in_another_process(db: st.Store) -> None:
    wanted = (pc.field("ls") == "a") & (pc.field("u64") < pa.scalar(9, pa.uint64()))
    with db.snapshot() as past, ProcessPoolExecutor(1, get_context("spawn")) as pool:
        tasks = [pickle.dumps(each) for each in past.scan_tasks("altered", ["id"], wanted)]
        found = [pa.ipc.open_stream(each).read_all() for each in pool.map(task_reader.read, tasks)]
    assert ids(pa.concat_tables(found)) == kept(ROWS["altered"], wanted)


def test_columns_by_their_number_are_those_of_the_table_and_no_task_has_them(
    db: st.Store,
) -> None:
    wanted = pc.field(ROWS["base"].column_names.index("u8")) == 1
    for table in ("active", "base"):
        assert ids(db[table].to_arrow(["s", "id"], wanted)) == kept(
            ROWS[table], pc.field("u8") == 1
        )
        with db.snapshot() as past, pytest.raises(RequestError, match="needs names"):
            past.scan_tasks(table, ["s", "id"], wanted)


DUCK = [
    "u8 = 1", "u16 <> 1", "u32 > 1", "u64 >= 9223372036854775808", "i8 IN (0, 1)", "NOT b",
    "ls = 'a'", "ls IN ('a', 'x')", "s > 'a' AND ls IS NOT NULL", "dec = 1.50", "i64 NOT IN (0, 1)",
    "d = DATE '1970-01-02'", "ts_us > TIMESTAMP '1970-01-01'", "t_s = TIME '12:00:00'",
    "t_ms < TIME '12:00:00'", "ts_ns <= TIMESTAMP_NS '1970-01-01'", "bin = 'a'::BLOB",
    "lbin = 'a'::BLOB", "f64 > 1", "st.x = 1", "u8 = 1 OR ls = 'it''s \\'", "added IS NULL",
    "ts_s_utc = TIMESTAMPTZ '1970-01-01 00:00:00+00'", "i32 BETWEEN 0 AND 5 AND u16 > 0",
]  # fmt: skip


@pytest.mark.parametrize("table", ["active", "base", "altered", "plain_altered", "timed"])
def test_duckdb_finds_the_same_rows(db: st.Store, table: str) -> None:
    memory = duckdb.connect()
    seconds = ROWS[table]["ts_s_utc"].cast(pa.int64())
    memory.register("rows", ROWS[table].append_column("seconds", seconds))
    for wanted in DUCK:
        alike = wanted.replace("f64", "f64 + 0")  # pushed into Arrow, DuckDB would lose NaN
        # DuckDB 2 reads the column itself, and has no room for all of its values.
        alike = alike.replace("ts_s_utc = TIMESTAMPTZ '1970-01-01 00:00:00+00'", "seconds = 0")
        right = memory.execute(f"SELECT id FROM rows WHERE {alike} ORDER BY id").fetchall()
        assert db.sql(f"SELECT id FROM {table} WHERE {wanted} ORDER BY id").fetchall() == right, (
            wanted
        )


def test_a_server_and_a_store_that_joined_answer_as_a_scan(db: st.Store, tmp_path: Path) -> None:
    rest = Rest(db.serve(port=0))
    with joined_to(db) as joined:
        for table in ("active", "base", "altered", "plain_altered"):
            for wanted in mixed(table)[::4]:
                right = kept(ROWS[table], wanted)
                assert ids(joined[table].to_arrow(["id"], wanted)) == right, wanted
                if isinstance(wanted, str):
                    asked = {"columns": ["id"], "filter": wanted, "k": 100, "vector": []}
                    found = rest.post(f"/v1/table/{table}/query", asked).rows
                    assert sorted(row["id"] for row in found) == right, wanted
                    told = rest.post(f"/v1/table/{table}/count_rows", {"predicate": wanted})
                    assert int(told.body) == len(right), wanted
    rest.close()


WRONG: list[Filter] = [
    "nothing = 1",
    "u8 = 'x'",
    "ls > 5",
    "s",
    "ts_us_utc > 'soon'",
    "ts_us > '2020-01-01 00:00:00Z'",
    "l_i64 = 1",
    "st.none = 1",
    "u8 = 1 AND",
    "u8 = (SELECT 1)",
    pc.field("nothing") == 1,
    pc.field("ls") > 5,
    pc.field("u8"),
    pc.field("dec") > 0,
    pc.field("st", "none") == 1,
    pc.field("l_i64") == 1,
]


@pytest.mark.parametrize("wanted", WRONG, ids=str)
def test_a_wrong_filter_is_refused_in_the_same_words_in_every_level(
    db: st.Store, wanted: Filter
) -> None:
    words: set[str] = set()
    for table in ("active", "flushed", "base", "mixed", "plain"):
        for door in (db[table].count, lambda w, t=table: db[t].to_arrow(["id"], w)):
            with pytest.raises(RequestError) as caught:
                door(wanted)
            words.add(str(caught.value).replace(" not null", ""))  # the key, in Arrow's words
    assert len(words) == 1, words


def test_a_filter_that_is_nested_deeply_is_answered_in_every_level(db: st.Store) -> None:
    wanted = "u8 = 1"
    for n in range(18):
        wanted = f"NOT ({wanted} AND i8 <> {n + 5})"
    right = kept(ROWS["base"], wanted)
    for table in ("active", "flushed", "base", "plain"):
        assert ids(db[table].to_arrow(["id"], wanted)) == right
