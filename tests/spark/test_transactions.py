"""Several frames into several tables are one commit: all or nothing, and with a token once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import siltstone as st
from siltstone.spark import transaction


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "store", background=False, segment_bytes=65_536) as store:
        store.create_table("orders", {"id": "int64", "total": "float64"}, primary_key="id")
        store.create_table("lines", {"id": "int64", "n": "int32"}, primary_key=["id", "n"])
        store.create_table("log", {"text": "string"})
        yield store
        assert store.verify(deep=True).is_sound


def orders(spark: SparkSession, first: int, last: int) -> DataFrame:
    return spark.range(first, last, 1, 2).selectExpr("id", "id * 1.5d as total")


def lines(spark: SparkSession, first: int, last: int) -> DataFrame:
    return spark.range(first, last, 1, 2).selectExpr("id", "explode(array(1, 2)) as n")


def counts(db: st.Store) -> dict[str, int]:
    return {name: db[name].count() for name in db.tables()}


def test_all_frames_become_visible_at_one_seq(spark: SparkSession, db: st.Store) -> None:
    before = db.seq
    with transaction(db, token=("etl", 1)) as tx:
        assert tx.write(orders(spark, 0, 50), "orders", op="upsert") == 50
        assert tx.write(lines(spark, 0, 50), "lines", op="insert") == 100
        assert tx.write(spark.sql("select 'loaded' as text"), "log") == 1
        assert db.seq == before
        assert counts(db) == {"lines": 0, "log": 0, "orders": 0}
    assert tx.seq == db.seq == before + 1
    assert counts(db) == {"lines": 100, "log": 1, "orders": 50}


def test_a_batch_that_is_tried_again_changes_nothing(spark: SparkSession, db: st.Store) -> None:
    for last in (50, 70):
        with transaction(db, token=("etl", 1)) as tx:
            tx.write(orders(spark, 0, last), "orders")
            tx.write(spark.sql("select 'loaded' as text"), "log")
    assert counts(db) == {"lines": 0, "log": 1, "orders": 50}
    db["orders"].upsert({"id": 1, "total": 0.0})
    db.checkpoint()
    db.vacuum(dry_run=False, grace_s=0)
    assert counts(db)["orders"] == 50


def test_an_error_in_the_block_leaves_every_table_as_it_was(
    spark: SparkSession, db: st.Store
) -> None:
    def interrupted() -> None:
        with transaction(db, token=("etl", 1)) as tx:
            tx.write(orders(spark, 0, 50), "orders")
            raise ZeroDivisionError

    def doubled() -> None:
        with transaction(db) as tx:
            tx.write(orders(spark, 0, 50), "orders")
            tx.write(lines(spark, 0, 5).union(lines(spark, 4, 6)), "lines")

    before = db.seq
    with pytest.raises(ZeroDivisionError):
        interrupted()
    with pytest.raises(st.DuplicateKeyError):
        doubled()
    assert db.seq == before
    assert counts(db) == {"lines": 0, "log": 0, "orders": 0}


def test_frames_replace_all_rows_of_some_tables(spark: SparkSession, db: st.Store) -> None:
    db["orders"].insert({"id": 999, "total": 1.0})
    db["log"].append({"text": "old"})
    with transaction(db) as tx:
        tx.write(orders(spark, 0, 10), "orders", mode="overwrite")
        tx.write(spark.sql("select 'new' as text"), "log", mode="overwrite")
        tx.write(lines(spark, 0, 10), "lines")
    assert counts(db) == {"lines": 20, "log": 1, "orders": 10}


def test_several_frames_go_into_one_table_each_over_the_one_before(
    spark: SparkSession, db: st.Store
) -> None:
    db["orders"].insert([{"id": n, "total": -1.0} for n in range(5)])
    before = db.seq
    with transaction(db) as tx:
        tx.write(orders(spark, 3, 50), "orders", op="upsert")
        tx.write(orders(spark, 0, 10).select("id"), "orders", op="delete")
        tx.write(orders(spark, 9, 10), "orders", op="upsert")
    assert tx.seq == db.seq == before + 1
    found = db["orders"].to_arrow().sort_by("id")["id"].to_pylist()
    assert found == list(range(9, 50))


def test_a_path_is_joined_for_the_commit(spark: SparkSession, db: st.Store) -> None:
    db.serve_local()
    with transaction(db.path, token=("etl", 1)) as tx:
        tx.write(orders(spark, 0, 50), "orders")
        tx.write(lines(spark, 0, 50), "lines")
    assert tx.seq == db.seq
    assert counts(db) == {"lines": 100, "log": 0, "orders": 50}


def test_bad_calls_are_named_and_nothing_is_written(spark: SparkSession, db: st.Store) -> None:
    before, frame = db.seq, orders(spark, 0, 5)
    tx = transaction(db)
    with pytest.raises(st.RequestError, match="mode must be one of append, overwrite; got 'error'"):
        tx.write(frame, "orders", mode="error")
    with pytest.raises(st.TableNotFoundError, match="nothing"):
        tx.write(frame, "nothing")
    with pytest.raises(st.SchemaMismatchError, match="no column 'id'"):
        tx.write(frame.select("total"), "orders")
    with pytest.raises(st.RequestError, match="op 'delete' needs 'append'"):
        tx.write(frame, "orders", op="delete", mode="overwrite")
    with pytest.raises(st.RequestError, match="no seq before it is committed"):
        _ = tx.seq
    tx.write(frame, "orders")
    with pytest.raises(st.RequestError, match="has already written to 'orders'"), tx:
        tx.write(frame, "orders", mode="overwrite")
    with pytest.raises(st.ClosedError, match="has ended"):
        tx.write(frame, "orders")
    assert db.seq == before


def test_small_transactions_go_on_while_frames_are_staged(
    spark: SparkSession, db: st.Store
) -> None:
    db["orders"].upsert([{"id": n, "total": 0.0} for n in range(5)])
    with transaction(db) as tx:
        tx.write(orders(spark, 0, 50), "orders")
        db["orders"].upsert({"id": 3, "total": -1.0})
        db["orders"].upsert({"id": 77, "total": -1.0})
    assert counts(db)["orders"] == 51
    assert db["orders"].get(3) == {"id": 3, "total": 4.5}


def changes(spark: SparkSession, *rows: tuple[int, str, int, float | None]) -> DataFrame:
    return spark.createDataFrame(list(rows), "_seq long, _op string, id long, total double")


def test_of_the_changes_of_a_key_the_newest_is_applied(spark: SparkSession, db: st.Store) -> None:
    db["orders"].insert([{"id": n, "total": -1.0} for n in range(6)])
    given = changes(
        spark,
        (4, "delete", 1, None),
        (9, "upsert", 1, 9.0),  # deleted, then there again
        (8, "delete", 2, None),
        (5, "upsert", 2, 5.0),  # changed, then deleted
        (6, "upsert", 3, None),
        (5, "upsert", 3, 3.0),
        (7, "delete", 77, None),  # never there
        (7, "upsert", 8, 8.0),
    ).repartition(3)
    before = db.seq
    for _ in range(2):
        with transaction(db, token=("copy", 1)) as tx:
            assert tx.apply_changes(given, "orders") == 5
        assert db.seq == before + 1
    found = {row["id"]: row["total"] for row in db["orders"].to_arrow().to_pylist()}
    assert found == {0: -1.0, 1: 9.0, 3: None, 4: -1.0, 5: -1.0, 8: 8.0}


@pytest.mark.parametrize("first", ["upsert", "delete"])
def test_a_key_that_is_deleted_and_written_in_one_commit_is_there(
    spark: SparkSession, db: st.Store, first: str
) -> None:
    """As a truncate leaves it that is filled again; in whichever order Spark finds the two."""
    given = changes(spark, (7, "upsert", 1, 1.0), (7, "delete", 1, None), (6, "delete", 1, None))
    ordered = given.orderBy(fn.col("_op") != first).coalesce(1)
    with transaction(db) as tx:
        tx.apply_changes(ordered, "orders")
    assert db["orders"].get(1) == {"id": 1, "total": 1.0}


def test_a_table_that_is_overwritten_at_once_is_copied(spark: SparkSession, db: st.Store) -> None:
    db.create_table("copy", {"id": "int64", "total": "float64"}, primary_key="id")
    db["orders"].upsert([{"id": n, "total": 0.0} for n in range(8)])
    since = db.seq - 1
    with db.transaction() as tx:
        tx["orders"].truncate()
        tx["orders"].upsert([{"id": n, "total": 1.0} for n in range(4, 12)])
    fed = db.changes(since, tables=["orders"])["orders"].read_all()
    rows = [tuple(row.values()) for row in fed.to_pylist()]
    with transaction(db) as tx:
        tx.apply_changes(changes(spark, *rows).repartition(5), "copy")
    assert db["copy"].to_arrow().sort_by("id") == db["orders"].to_arrow().sort_by("id")


def test_changes_that_are_none_are_refused(spark: SparkSession, db: st.Store) -> None:
    tx = transaction(db)
    with pytest.raises(
        st.SchemaMismatchError, match="changes must have the columns '_seq' and '_op'"
    ):
        tx.apply_changes(orders(spark, 0, 5), "orders")
    with pytest.raises(st.RequestError, match="'log' has the key"):
        tx.apply_changes(changes(spark, (1, "upsert", 1, 1.0)), "log")
    with pytest.raises(st.RequestError, match="'lines' has the key"):
        tx.apply_changes(changes(spark, (1, "upsert", 1, 1.0)), "lines")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((10, None, 1, 1.0), "_seq 10 has the _op null"),
        ((10, "DELETE", 1, None), "_seq 10 has the _op 'DELETE'"),
        ((10, "frob", 9, 1.0), "_seq 10 has the _op 'frob'"),
        ((None, "upsert", 1, 1.0), "_op 'upsert' has the _seq null"),
        ((None, None, 1, 1.0), "null"),
    ],
)
def test_a_change_without_a_seq_or_with_an_op_that_is_none_is_refused(
    spark: SparkSession, db: st.Store, row: tuple, said: str
) -> None:
    before = db.seq
    given = changes(
        spark, (11, "upsert", 1, 1.0), row, (12, "upsert", 1, 2.0), (9, "delete", 3, None)
    )
    with (
        pytest.raises(st.RequestError, match="changes for 'orders'") as caught,
        transaction(db) as tx,
    ):
        tx.apply_changes(given.repartition(3), "orders")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert db.seq == before
    assert counts(db)["orders"] == 0


def test_rows_that_a_feed_from_nothing_begins_with_are_applied(
    spark: SparkSession, db: st.Store
) -> None:
    with transaction(db) as tx:
        tx.apply_changes(changes(spark, (7, "snapshot", 1, 1.0), (8, "delete", 2, None)), "orders")
    assert db["orders"].to_arrow().to_pylist() == [{"id": 1, "total": 1.0}]


def test_a_stream_of_changes_copies_a_table_in_as_many_commits(
    spark: SparkSession, db: st.Store, tmp_path: Path
) -> None:
    db.create_table("copy", {"id": "int64", "total": "float64"}, primary_key="id")
    db.serve_local()

    def apply(batch: DataFrame, number: int) -> None:
        with transaction(db.path, token=("copy", number)) as tx:
            tx.apply_changes(batch, "copy")

    def follow() -> None:
        stream = spark.readStream.format("siltstone").option("uri", str(db.path))
        frame = stream.option("table", "orders").option("startingSeq", "earliest").load()
        query = frame.writeStream.foreachBatch(apply).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()

    for turn in range(3):
        db["orders"].upsert([{"id": n, "total": float(turn)} for n in range(turn, 9 - turn)])
        db["orders"].delete([turn, 100])
        follow()
        assert db["copy"].to_arrow().sort_by("id") == db["orders"].to_arrow().sort_by("id")
