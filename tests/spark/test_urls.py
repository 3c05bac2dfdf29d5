"""A server's URL names a store to Spark as its path does: rows by files, commits by the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import merge, optimize, snapshot, transaction

Served = tuple[st.Store, str]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Give an owner that others reach by its URL alone."""
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
        db["t"].upsert([{"id": n, "v": "first"} for n in range(10)])
        yield db, db.serve(port=0).url


def test_a_frame_is_read_and_written_by_the_url(spark: SparkSession, served: Served) -> None:
    db, url = served
    options = {"uri": url, "table": "t"}
    assert spark.read.format("siltstone").options(**options).load().count() == 10
    rows = spark.range(5, 20).selectExpr("id", "'second' v")
    rows.write.format("siltstone").mode("append").options(**options).save()
    assert db["t"].count() == 20
    assert db["t"].get(5) == {"id": 5, "v": "second"}


def test_snapshots_transactions_and_merges_take_the_url_and_the_store_behind_it(
    spark: SparkSession, served: Served
) -> None:
    db, url = served
    with st.connect(url) as remote:
        for number, place in enumerate((url, remote)):
            with transaction(place, token=("etl", number)) as tx:
                tx.write(spark.range(100, 103).selectExpr("id", f"'{number}' v"), "t")
            with snapshot(spark, place) as now:
                assert now.seq == tx.seq == db.seq
                assert now["t"].where(f"v = '{number}'").count() == 3
    db.checkpoint()
    merge(spark, url)
    optimize(spark, url)
    with st.connect(db.path, read_only=True) as reader:
        (status,) = (table for table in reader.status().tables if table.name == "t")
    assert (status.base_rows, status.unmerged_rows) == (13, 0)


def test_a_stream_goes_from_a_url_to_a_url(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    db, url = served
    db.create_table("log", {"seq": "int64", "id": "int64"})
    checkpoint = str(tmp_path / "checkpoint")
    for expected in (10, 11):
        changes = (
            spark.readStream.format("siltstone")
            .options(uri=url, table="t", startingSeq="earliest")
            .load()
        )
        query = (
            changes.selectExpr("_seq seq", "id")
            .writeStream.format("siltstone")
            .options(uri=url, table="log", checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)
        assert db["log"].count() == expected
        db["t"].upsert({"id": expected, "v": "later"})


def test_a_url_whose_files_are_not_here_is_refused(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    db, url = served
    with st.connect(url) as remote:
        (tmp_path / "s").rename(tmp_path / "elsewhere")
        try:
            with pytest.raises(st.RequestError, match="this machine does not see"):
                snapshot(spark, url)
            with pytest.raises(st.RequestError, match="this machine does not see"):
                snapshot(spark, remote)
            with pytest.raises(st.RequestError, match="this machine does not see"):
                merge(spark, url)
        finally:
            (tmp_path / "elsewhere").rename(tmp_path / "s")
    assert db["t"].count() == 10
