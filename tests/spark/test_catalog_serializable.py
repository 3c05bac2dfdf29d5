"""A serializable statement conflicts with each change of what it read, whatever it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from tests.spark.test_catalog_changes import ORDERS, Shop

SERIALIZABLE = "isolation = 'serializable'"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False, retention="0s") as db:
        db.create_table("copy", ORDERS, "id").upsert([{"id": 1, "c": 1, "s": "x1"}])
        db.create_table("p", {"a": "int64", "b": "string"}).append([{"a": 1, "b": "one"}])
        db.create_table("q", {"a": "int64", "b": "string"})
        db.create_table("o", ORDERS, "id").upsert([{"id": 8, "c": 3, "s": "x8"}])
        db.serve_local()
        yield db


@pytest.fixture
def shop(spark: SparkSession, db: st.Store) -> Shop:
    return Shop(spark, db)


def _of_the_keyed(shop: Shop) -> Callable[[], object]:
    return lambda: shop.db["copy"].upsert({"id": 500, "c": 500, "s": ""})


def _of_the_plain(shop: Shop) -> Callable[[], object]:
    return lambda: shop.db["p"].append({"a": 500, "b": ""})


# {0}: the option, where a statement has a place for it; {1}: 0; {2}: what it reads.
WRITES = {
    "a plain table": "INSERT INTO q {0} SELECT {1} + count(*), 'x' FROM {2}",
    "all of a plain table": "INSERT OVERWRITE q {0} SELECT {1} + count(*), 'x' FROM {2}",
    "rows of a plain table": "INSERT INTO q {0} REPLACE WHERE a = 1 SELECT 1 + {1}, 'x' FROM {2}",
    "all of a table with a key": (
        "INSERT OVERWRITE o {0} SELECT 100 + {1} + count(*), 1, 's' FROM {2}"
    ),
    "a table that is made": "CREATE TABLE made AS SELECT {1} + count(*) AS n FROM {2}",
    "a table that is replaced": "CREATE OR REPLACE TABLE q AS SELECT {1} + count(*) AS n FROM {2}",
}
READS = {"copy": _of_the_keyed, "p": _of_the_plain}


def _conflicts(shop: Shop, text: str, table: str) -> None:
    before = _rows(shop.db)
    with pytest.raises(Exception, match=rf"{table}\[.*\] was written at seq"):
        shop.sql(text)
    assert _rows(shop.db) == before


def _rows(db: st.Store) -> dict[str, object]:
    return {name: db[name].to_arrow().to_pylist() for name in db.tables() if name not in READS}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("text", WRITES.values(), ids=WRITES)
def test_a_serializable_write_conflicts_with_a_change_of_what_it_reads(
    shop: Shop, text: str, read: str
) -> None:
    setting, change = f"spark.sql.catalog.{shop.name}.isolation", READS[read](shop)
    before = _rows(shop.db)
    with_option = f"WITH ({SERIALIZABLE})" if "{0}" in text else ""
    if not with_option:
        shop.spark.conf.set(setting, "serializable")
    try:
        _conflicts(shop, text.format(with_option, shop.during(change), read), read)
        shop.sql(text.format(with_option, "0", read))
    finally:
        shop.spark.conf.unset(setting)
    assert _rows(shop.db) != before


@pytest.mark.parametrize("text", WRITES.values(), ids=WRITES)
def test_a_write_takes_its_sources_as_they_were(shop: Shop, text: str) -> None:
    shop.sql(text.format("", shop.during(_of_the_keyed(shop)), "copy"))


def test_the_setting_of_a_catalog_counts_for_tables_without_a_key(shop: Shop) -> None:
    setting = f"spark.sql.catalog.{shop.name}.isolation"
    shop.spark.conf.set(setting, "serializable")
    try:
        zero = shop.during(_of_the_keyed(shop))
        _conflicts(shop, f"INSERT INTO q SELECT {zero} + count(*), 'x' FROM copy", "copy")
        shop.sql("INSERT INTO q VALUES (1, 'x')")
    finally:
        shop.spark.conf.unset(setting)
    assert shop.db["q"].count() == 1


def test_rows_that_a_plain_table_got_since_it_was_read_are_a_conflict_of_its_own(
    shop: Shop,
) -> None:
    zero = shop.during(_of_the_plain(shop))
    _conflicts(
        shop, f"INSERT INTO p WITH ({SERIALIZABLE}) SELECT {zero} + count(*), 'x' FROM p", "p"
    )
    shop.sql(f"INSERT INTO p WITH ({SERIALIZABLE}) SELECT count(*), 'x' FROM p")
    assert sorted(shop.db["p"].to_arrow()["a"].to_pylist()) == [1, 2, 500]


def test_a_serializable_overwrite_names_from_which_seq_changes_count(shop: Shop) -> None:
    text = "INSERT OVERWRITE q WITH (" + SERIALIZABLE + ", expectSeq = {0}) SELECT {1}, b FROM p"
    known = shop.db.seq
    _of_the_plain(shop)()
    shop.refuses(text.format(known, 1), r"p\[.*\] was written at seq")
    shop.sql(text.format(shop.db.seq, 1))
    assert shop.db["q"].count() == 2


@pytest.mark.parametrize("text", [*WRITES.values(), "INSERT INTO o {0} SELECT * FROM {2}"])
def test_an_isolation_that_does_not_exist_is_refused(shop: Shop, text: str) -> None:
    setting = f"spark.sql.catalog.{shop.name}.isolation"
    shop.spark.conf.set(setting, "repeatable")
    try:
        shop.refuses(text.format("", 0, "copy"), "isolation must be one of")
    finally:
        shop.spark.conf.unset(setting)


@pytest.mark.parametrize("target", ["o", "q"])
def test_a_serializable_statement_takes_no_rows_whose_seq_spark_does_not_show(
    shop: Shop, target: str
) -> None:
    loaded = shop.spark.read.format("siltstone").option("table", "p").load(str(shop.db.path))
    rows = loaded.selectExpr("a AS id", "1 AS c", "b AS s") if target == "o" else loaded
    writer = rows.writeTo(f"{shop.name}.{target}")
    before = shop.db.seq
    with pytest.raises(Exception, match="read 'p' through the catalog"):
        writer.option("isolation", "serializable").append()
    assert shop.db.seq == before
    rows.writeTo(f"{shop.name}.{target}").append()
    assert shop.db.seq == before + 1
