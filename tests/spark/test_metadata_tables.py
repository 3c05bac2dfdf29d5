"""Metadata tables tell what a store knows of its tables and of itself, and are only read."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

import siltstone as st
from siltstone.spark import register
from siltstone.spark.context.kept_stores import kept
from siltstone.spark.daemon.calls import metadata
from tests.spark.daemons import daemons

_numbers = itertools.count()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a store with rows in base, in history and in the log."""
    with st.connect(tmp_path / "s", background=False) as db:
        o = db.create_table("o", {"id": "int64", "s": "string"}, "id")
        o.upsert([{"id": n, "s": "a"} for n in range(10)])
        p = db.create_table("p", {"a": "int64"})
        p.append([{"a": 1}])
        p.append([{"a": 2}])
        db.checkpoint()
        db.merge()
        o.create_index("s")
        o.upsert([{"id": 1, "s": "b"}])
        db.checkpoint()
        with db.transaction(token=("etl", 7)) as tx:
            tx["o"].upsert([{"id": 2, "s": "b"}])
            tx["p"].append([{"a": 3}])
        db.rename_table("o", "orders")
        db.tag("release")
    return tmp_path / "s"


class Shop:
    """A catalog of a store, and the store itself."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path, self.name = spark, path, f"m{next(_numbers)}"
        register(spark, stores={self.name: path})

    def sql(self, text: str) -> list[Row]:
        return self.spark.sql(text.format(shop=self.name)).collect()

    def read(self, work: Callable[[st.Store], Any]) -> Any:
        with st.connect(self.path, read_only=True) as db:
            return work(db)

    def refuses(self, text: str, said: str) -> None:
        """Check that a statement says `said`, and changes nothing."""
        before = self.read(lambda db: db.seq)
        with pytest.raises(Exception, match=said):
            self.sql(text)
        assert self.read(lambda db: db.seq) == before


@pytest.fixture
def shop(spark: SparkSession, path: Path) -> Shop:
    return Shop(spark, path)


# --- what is in them


def test_a_history_has_the_commits_of_its_table_under_all_its_names(shop: Shop) -> None:
    found = shop.sql("SELECT * FROM {shop}.orders.history ORDER BY seq")
    log = {e.seq: e for e in shop.read(lambda db: db.log(100))}
    assert [row["tables"] for row in found] == [[], ["o"], ["o"], ["o", "p"], []]
    assert [row["changes"] for row in found] == [
        ["create o"], [], [], [], ["rename o to orders"],
    ]  # fmt: skip
    assert [row["token"] for row in found] == [None, None, None, "etl:7", None]
    assert [row["rows"] for row in found] == [log[row["seq"]].rows for row in found]
    times = [row["t"] for row in shop.sql("SELECT unix_micros(time) t FROM {shop}.orders.history")]
    assert times == [int(log[row["seq"]].time.timestamp() * 1e6) for row in reversed(found)]


def test_a_log_has_the_commits_of_the_store_the_newest_first(shop: Shop) -> None:
    found = shop.sql("SELECT seq, transaction FROM {shop}.system.log LIMIT 3")
    assert [tuple(row) for row in found] == [
        (e.seq, e.transaction) for e in shop.read(lambda db: db.log(3))
    ]


def test_files_are_those_of_the_store_with_their_sizes(shop: Shop) -> None:
    found = shop.sql("SELECT * FROM {shop}.orders.files")
    assert {row["level"]: row["rows"] for row in found if row["rows"] > 1}["base"] == 10
    assert "history" in {row["level"] for row in found}
    for row in [*found, *shop.sql("SELECT * FROM {shop}.p.files")]:
        assert (shop.path / row["path"]).stat().st_size == row["bytes"]
    assert shop.sql("SELECT sum(rows) n FROM {shop}.p.files")[0]["n"] == 3
    shop.sql("CREATE TABLE {shop}.e (id BIGINT PRIMARY KEY)")
    assert shop.sql("SELECT * FROM {shop}.e.files") == []


def test_indexes_and_tags_are_those_of_now(shop: Shop) -> None:
    (index,) = shop.sql("SELECT * FROM {shop}.orders.indexes")
    assert (index["index"], index["column"], index["kind"]) == ("s", "s", "btree")
    assert (index["indexed_rows"], index["lagging_rows"]) == (10, 0)
    assert json.loads(index["options"]) == {}
    assert index["bytes"] > 0
    tags = shop.sql("SELECT * FROM {shop}.system.tags")
    assert {row["tag"]: row["seq"] for row in tags} == shop.read(lambda db: db.tags())
    shop.sql("CALL {shop}.system.tag('second')")
    assert len(shop.sql("SELECT * FROM {shop}.system.tags")) == 2


def test_a_statement_reads_metadata_at_the_seq_of_its_other_tables(shop: Shop) -> None:
    frame = shop.spark.sql(f"SELECT max(seq) m FROM {shop.name}.p.history")
    shop.sql("INSERT INTO {shop}.p VALUES (9)")
    newest = shop.read(lambda db: db.seq)
    assert frame.collect()[0]["m"] < newest
    joined = shop.sql("SELECT count(*) c, max(h.seq) m FROM {shop}.p CROSS JOIN {shop}.p.history h")
    assert joined[0]["m"] == newest


def test_spark_filters_describes_and_joins_them(shop: Shop) -> None:
    assert [row["seq"] for row in shop.sql("SELECT seq FROM {shop}.orders.history WHERE seq = 1")]
    names = [row["col_name"] for row in shop.sql("DESCRIBE {shop}.orders.files")]
    assert names == ["path", "level", "rows", "bytes"]
    tagged = shop.sql(
        "SELECT t.tag FROM {shop}.system.tags t JOIN {shop}.orders.history h ON t.seq = h.seq"
    )
    assert [row["tag"] for row in tagged] == ["release"]
    assert shop.spark.table(f"{shop.name}.system.log").count() == shop.read(lambda db: db.seq)


def test_the_tables_of_the_store_are_listed_and_those_of_tables_are_not(shop: Shop) -> None:
    shown = [row["tableName"] for row in shop.sql("SHOW TABLES IN {shop}.system")]
    assert shown == ["log", "tags"]
    assert [row["tableName"] for row in shop.sql("SHOW TABLES IN {shop}")] == ["orders", "p"]


def test_a_process_that_is_started_again_gives_them_again(shop: Shop) -> None:
    frame = shop.spark.table(f"{shop.name}.orders.history")
    for pid in daemons():
        os.kill(pid, signal.SIGKILL)
    assert frame.count() == 5


# --- a table of such a name


def test_a_table_of_the_store_wins(spark: SparkSession, path: Path) -> None:
    with st.connect(path, background=False) as db:
        db.create_table("orders.history", {"x": "int64"}).append([{"x": 42}])
        db.create_table("system.tags", {"y": "int64"}).append([{"y": 43}])
    shop = Shop(spark, path)
    assert shop.sql("SELECT * FROM {shop}.orders.history")[0]["x"] == 42
    assert shop.sql("SELECT * FROM {shop}.system.tags")[0]["y"] == 43
    shop.sql("INSERT INTO {shop}.orders.history VALUES (1)")
    assert len(shop.sql("SELECT * FROM {shop}.orders.history")) == 2
    assert shop.sql("SELECT count(*) c FROM {shop}.orders.files")[0]["c"] > 0
    shop.sql("DROP TABLE {shop}.orders.history")
    assert "seq" in shop.spark.table(f"{shop.name}.orders.history").columns


# --- what is refused


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("INSERT INTO {shop}.orders.files VALUES ('a', 'b', 1, 1)", "orders`?.`?files"),
        ("DELETE FROM {shop}.system.tags WHERE tag = 'release'", "system`?.`?tags|DELETE"),
        ("UPDATE {shop}.system.tags SET seq = 1", "system`?.`?tags|UPDATE"),
        ("TRUNCATE TABLE {shop}.orders.history", "orders`?.`?history"),
        ("DROP TABLE {shop}.system.tags", "system.tags is metadata of the store: it is only read"),
        ("ALTER TABLE {shop}.orders.files ADD COLUMNS (x INT)", "orders.files is metadata"),
        ("ALTER TABLE {shop}.orders.files RENAME TO other", "orders.files is metadata"),
        ("ALTER TABLE {shop}.p RENAME TO orders.files", "orders.files is metadata"),
        ("CREATE TABLE {shop}.orders.history (x INT)", "orders`?.`?history.*already exists"),
        ("CREATE TABLE {shop}.system.log AS SELECT 1 x", "system`?.`?log.*already exists"),
    ],
)
def test_a_statement_that_writes_metadata_is_refused_by_its_name(
    shop: Shop, statement: str, said: str
) -> None:
    shop.refuses(statement, said)


def test_metadata_has_no_versions_and_no_options(shop: Shop) -> None:
    shop.refuses("SELECT * FROM {shop}.orders.files VERSION AS OF 'release'", "metadata of now")
    shop.refuses("SELECT * FROM {shop}.system.log VERSION AS OF 'release'", "has no versions")
    shop.refuses("SELECT * FROM {shop}.orders.files WITH (filter = 'rows > 1')", "no options")


def test_metadata_of_what_is_not_there_is_no_table(shop: Shop) -> None:
    for name in ("q.history", "orders.snapshots", "system.history", "other.tags", "history"):
        shop.refuses(f"SELECT * FROM {{shop}}.{name}", "TABLE_OR_VIEW_NOT_FOUND")


def test_a_table_of_very_many_files_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "FILES_MAX", 1)
    with kept(str(path)) as db, db.snapshot() as snapshot:
        with pytest.raises(st.RequestError, match=r"orders\.files has \d rows, more than 1"):
            metadata.read(snapshot, "orders.files", is_past=False, with_rows=True)
        monkeypatch.setattr(metadata, "COMMITS_MAX", 2)
        found = metadata.read(snapshot, "system.log", is_past=False, with_rows=True)
    assert found is not None
    assert found.num_rows == 2
