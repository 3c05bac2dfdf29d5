"""What is wide, long or in many pieces is written and read by SQL, or refused by one sentence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.formats.schema import COLUMNS_MAX
from siltstone.spark import register
from siltstone.spark.daemon.regions import SLOT_BYTES

_numbers = itertools.count()
PARTITIONS = 1_000
LARGE = 5 * SLOT_BYTES
"""A text of so many bytes is larger than a slot, and than what a task sends at once."""


class Shop:
    """A catalog of a store with the tables `t` and `plain`, and the store."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.name, self.path, self.spark = f"sizes{next(_numbers)}", path, spark
        with st.connect(path, background=False) as db:
            db.create_table("t", {"id": "int64", "s": "string"}, "id")
            db.create_table("plain", {"id": "int64", "s": "string"})
        register(spark, stores={self.name: path})

    def sql(self, text: str) -> list[tuple[object, ...]]:
        self.spark.sql(f"USE {self.name}")
        try:
            return [tuple(row) for row in self.spark.sql(text).collect()]
        finally:
            self.spark.sql("USE spark_catalog")

    def seq(self) -> int:
        with st.connect(self.path, read_only=True) as db:
            return db.seq


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    found = Shop(spark, tmp_path / "shop")
    yield found
    with st.connect(found.path, background=False) as db:
        assert db.verify(deep=True).is_sound


@pytest.mark.parametrize("table", ["t", "plain"])
def test_a_statement_of_a_thousand_tasks_is_one_commit(shop: Shop, table: str) -> None:
    before = shop.seq()
    rows = 10 * PARTITIONS
    shop.sql(f"INSERT INTO {table} SELECT id, 'x' FROM range(0, {rows}, 1, {PARTITIONS})")
    assert shop.seq() == before + 1
    assert shop.sql(
        f"SELECT count(id), sum(id), count(DISTINCT id) FROM {table} WHERE s = 'x'"
    ) == [(rows, rows * (rows - 1) // 2, rows)]


def test_a_merge_of_a_thousand_tasks_is_one_commit(shop: Shop) -> None:
    rows = 4 * PARTITIONS
    shop.sql(f"INSERT INTO t SELECT id, 'x' FROM range({rows})")
    with st.connect(shop.path, background=False) as db:
        db.checkpoint()
        db.merge()
    before = shop.seq()
    read = shop.spark.table(f"{shop.name}.t")
    assert read.count() == rows
    shop.sql(
        f"MERGE INTO t USING (SELECT /*+ REPARTITION({PARTITIONS}) */ id + {rows // 2} id"
        f" FROM t WITH (maxRowsPerTask = 4)) x ON t.id = x.id"
        " WHEN MATCHED AND t.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'm'"
        " WHEN NOT MATCHED THEN INSERT (id, s) VALUES (x.id, 'n')"
    )
    assert shop.seq() == before + 1
    assert shop.sql("SELECT s, count(*), min(id), max(id) FROM t GROUP BY s ORDER BY s") == [
        ("m", rows // 4, rows // 2 + 1, rows - 1),
        ("n", rows // 2, rows, rows + rows // 2 - 1),
        ("x", rows // 2, 0, rows // 2 - 1),
    ]


def test_a_read_of_a_thousand_partitions_has_each_row_once(shop: Shop) -> None:
    shop.sql(f"INSERT INTO plain SELECT id, 'x' FROM range(0, {2 * PARTITIONS}, 1, 1)")
    with st.connect(shop.path, background=False) as db:
        db.checkpoint()
    frame = shop.spark.sql(f"SELECT * FROM {shop.name}.plain WITH (maxRowsPerTask = 2)")
    assert frame.rdd.getNumPartitions() >= 64, "a file is at most so many tasks"
    assert sorted(row.id for row in frame.collect()) == list(range(2 * PARTITIONS))


def test_rows_that_are_larger_than_a_slot_are_written_and_changed(shop: Shop) -> None:
    shop.sql(
        f"INSERT INTO t SELECT id, repeat(chr(97 + id), {LARGE} * (id % 2) + 3)"
        " FROM range(0, 6, 1, 2)"
    )
    shape = "SELECT id, length(s), left(s, 1), right(s, 1) FROM t ORDER BY id"
    wanted = [(n, LARGE * (n % 2) + 3, chr(97 + n), chr(97 + n)) for n in range(6)]
    assert shop.sql(shape) == wanted
    shop.sql("UPDATE t SET s = concat(s, 'z') WHERE id % 3 = 1")
    shop.sql(
        "MERGE INTO t USING (SELECT id + 1 id, s FROM t WHERE id >= 4) x ON t.id = x.id"
        " WHEN MATCHED THEN UPDATE SET s = x.s WHEN NOT MATCHED THEN INSERT *"
    )
    wanted[1] = (1, LARGE + 4, "b", "z")
    wanted[4] = (4, 4, "e", "z")
    wanted[5] = (5, 4, "e", "z")
    assert shop.sql(shape) == [*wanted, (6, LARGE + 3, "f", "f")]
    assert shop.sql("SELECT count(*) FROM t a JOIN t b ON a.s = b.s") == [(9,)]


def _columns(count: int) -> str:
    return ", ".join(f"id + {n} AS c{n}" for n in range(count))


def test_a_table_of_as_many_columns_as_there_may_be_is_made_and_changed(shop: Shop) -> None:
    wide = f"SELECT {_columns(COLUMNS_MAX)} FROM range(0, 20, 1, 2)"
    shop.sql(f"CREATE TABLE wide TBLPROPERTIES ('primaryKey' = 'c0') AS {wide}")
    last = f"c{COLUMNS_MAX - 1}"
    shop.sql(f"UPDATE wide SET {last} = -1 WHERE c0 % 7 = 3")
    rows = shop.spark.sql(f"SELECT * FROM {shop.name}.wide ORDER BY c0").collect()
    for n, row in enumerate(rows):
        whole = [n + k for k in range(COLUMNS_MAX - 1)]
        assert list(row) == [*whole, -1 if n % 7 == 3 else n + COLUMNS_MAX - 1]


@pytest.mark.parametrize("count", [COLUMNS_MAX + 1, 10_000])
def test_a_table_of_more_columns_is_refused_and_not_made(shop: Shop, count: int) -> None:
    before = shop.seq()
    for text in (
        f"CREATE TABLE wide AS SELECT {_columns(count)} FROM range(3)",
        f"CREATE TABLE wide ({', '.join(f'c{n} INT' for n in range(count))})",
    ):
        with pytest.raises(Exception, match="columns") as said:
            shop.sql(text)
        first = str(said.value).split("\n", maxsplit=1)[0]
        assert first == f"a table must have 1 to {COLUMNS_MAX} columns; got {count}"
    assert shop.seq() == before
