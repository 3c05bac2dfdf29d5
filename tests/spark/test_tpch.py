"""All 22 queries of TPC-H over plain views answer as DuckDB over a copy made without Siltstone.

The store is loaded in one commit and merged. Then come refresh sets and upserts, of which some are
checkpointed and some are in the log alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import siltstone as st
from bench.spark.tpch_queries import ALL
from examples.tpch import data
from examples.tpch.queries import Rows, difference
from examples.tpch.refresh import RefreshSets
from siltstone.spark import snapshot

SCALE = 0.01
SETS = 40
LINES = ("l_orderkey", "l_linenumber")


@dataclass(frozen=True)
class Case:
    """A state of the store, and the seq that is read in it: the loaded one, or now."""

    is_refreshed: bool
    is_merged_after: bool
    is_older: bool


CASES = {
    "clean, now": Case(is_refreshed=False, is_merged_after=False, is_older=False),
    "fresh rows, now": Case(is_refreshed=True, is_merged_after=False, is_older=False),
    "fresh rows, at the older seq": Case(is_refreshed=True, is_merged_after=False, is_older=True),
    "merged, at the older seq": Case(is_refreshed=True, is_merged_after=True, is_older=True),
}


@dataclass(frozen=True)
class Refresh:
    """A refresh set, and rows of other tables that are upserted with it."""

    inserted: Mapping[str, pa.Table]
    deleted_orders: pa.Array
    deleted_lines: pa.Table
    upserted: Mapping[str, pa.Table]


@dataclass(frozen=True)
class Source:
    """The generated tables and what is to be done to them."""

    files: Mapping[str, Path]
    refreshes: list[Refresh]


def table_of(rows: pa.ChunkedArray) -> pa.Table:
    return pa.Table.from_struct_array(rows)


def refresh(found: pa.Table, upserted: Mapping[str, pa.Table]) -> Refresh:
    inserts = found.filter(pc.equal(found["op"], "insert"))
    deletes = found.filter(pc.equal(found["op"], "delete"))
    return Refresh(
        {
            "orders": table_of(inserts["order"]),
            "lineitem": table_of(pc.list_flatten(inserts["lines"])),
        },
        deletes["o_orderkey"].combine_chunks(),
        table_of(pc.list_flatten(deletes["lines"])).select(LINES),
        upserted,
    )


def upserts(files: Mapping[str, Path], number: int) -> dict[str, pa.Table]:
    """Return other values of a few rows of the tables that no refresh set touches."""

    def some(table: str, every: int) -> pa.Table:
        rows = pq.read_table(files[table], schema=data.schema(files[table]))
        return rows.take(pa.array(range(number, len(rows), every)))

    def changed(table: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
        index = table.schema.get_field_index(column)
        return table.set_column(index, table.schema.field(index), values.cast(table[column].type))

    customers, parts, stock = some("customer", 80), some("part", 80), some("partsupp", 80)
    richer = pc.add(customers["c_acctbal"], Decimal("500.25"))
    return {
        "customer": changed(customers, "c_acctbal", richer),
        "part": changed(parts, "p_size", pc.add(parts["p_size"], 1)),
        "partsupp": changed(stock, "ps_availqty", pc.add(stock["ps_availqty"], 4_000)),
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    files = data.generate(tmp_path_factory.mktemp("tpch") / "parquet", SCALE)
    sets = RefreshSets(files, data.BaseTables.read(files, SCALE))
    return Source(files, [refresh(sets[n], upserts(files, n)) for n in range(SETS)])


def ask(connection: duckdb.DuckDBPyConnection) -> dict[str, Rows]:
    return {name: connection.sql(text).fetchall() for name, text in ALL.items()}


@pytest.fixture(scope="module")
def loaded(source: Source) -> dict[str, Rows]:
    """What DuckDB answers over the generated files."""
    with closing(duckdb.connect()) as connection:
        for name, file in source.files.items():
            connection.execute(f"create view {name} as select * from '{file}'")
        return ask(connection)


@pytest.fixture(scope="module")
def refreshed(source: Source) -> dict[str, Rows]:
    """What DuckDB answers over its own copy of the files, to which the same was done in SQL."""
    with closing(duckdb.connect()) as connection:
        for name, file in source.files.items():
            connection.execute(f"create table {name} as select * from '{file}'")
        for each in source.refreshes:
            refresh_copy(connection, each)
        return ask(connection)


def refresh_copy(connection: duckdb.DuckDBPyConnection, each: Refresh) -> None:
    connection.register("old_orders", pa.table({"o_orderkey": each.deleted_orders}))
    connection.register("old_lines", each.deleted_lines)
    connection.execute("delete from orders where o_orderkey in (from old_orders)")
    connection.execute(f"delete from lineitem where ({', '.join(LINES)}) in (from old_lines)")
    for name, rows in each.upserted.items():
        connection.register("rows", rows)
        same = " and ".join(f"{name}.{column} = rows.{column}" for column in data.KEYS[name])
        connection.execute(f"delete from {name} using rows where {same}")
        connection.execute(f"insert into {name} from rows")
    for name, rows in each.inserted.items():
        connection.register("rows", rows)
        connection.execute(f"insert into {name} from rows")


def fill(db: st.Store, files: Mapping[str, Path]) -> int:
    """Load all tables in one commit, and merge them; return the seq."""
    with db.transaction() as tx:
        for name, key in data.KEYS.items():
            schema = data.schema(files[name])
            tx.create_table(name, schema, key)
            tx[name].insert(pq.read_table(files[name], schema=schema))
    db.checkpoint()
    db.merge()
    return db.seq


def refresh_store(db: st.Store, each: Refresh) -> None:
    with db.transaction() as tx:
        for name, rows in each.inserted.items():
            tx[name].insert(rows)
        tx["orders"].delete(each.deleted_orders.to_pylist())
        keys = each.deleted_lines.to_pydict()
        tx["lineitem"].delete(list(zip(*(keys[name] for name in LINES), strict=True)))
        for name, rows in each.upserted.items():
            tx[name].upsert(rows)


@pytest.fixture(scope="module", params=CASES)
def case(
    request: pytest.FixtureRequest,
    source: Source,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Case]:
    """A case whose views are there, made once and with no columns named."""
    found = CASES[request.param]
    path = tmp_path_factory.mktemp("tpch") / "store"
    with st.connect(path, background=False) as db:
        older = fill(db, source.files)
        for number, each in enumerate(source.refreshes if found.is_refreshed else []):
            refresh_store(db, each)
            if number == SETS // 2:
                db.checkpoint()
        if found.is_merged_after:
            db.checkpoint()
            db.merge()
        with snapshot(spark, path, seq=older if found.is_older else None) as views:
            assert sorted(views.create_views()) == sorted(data.KEYS)
            yield found
    shutil.rmtree(path)


@pytest.mark.parametrize("query", ALL)
def test_a_query_over_plain_views_answers_as_duckdb_does(
    case: Case,
    query: str,
    spark: SparkSession,
    request: pytest.FixtureRequest,
) -> None:
    is_loaded = case.is_older or not case.is_refreshed
    expected = request.getfixturevalue("loaded" if is_loaded else "refreshed")[query]
    assert expected
    assert expected[0][-1] is not None
    assert difference(spark.sql(ALL[query]).collect(), expected) is None


def test_the_refresh_changes_all_answers_but_those_of_very_few_rows(
    loaded: dict[str, Rows], refreshed: dict[str, Rows]
) -> None:
    same = {name for name in ALL if difference(loaded[name], refreshed[name]) is None}
    assert same <= {"Q17", "Q19", "Q20"}
