"""Merge and optimize on Spark: the rows are written by executors, the answers stay."""

from __future__ import annotations

import contextlib
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.admin import CaughtUp
from siltstone.engine.write.stage_task import Staged
from siltstone.maintenance.index import index_plan
from siltstone.maintenance.merge import merge as merging
from siltstone.maintenance.schedule.unmerged import MERGE_ROWS_MIN
from siltstone.spark import index, merge, optimize, transaction
from siltstone.spark.writes import automatic_merge
from siltstone.spark.writes.staging import FramePiece, StageJob
from siltstone.storage.tables.values import StagedFiles as Files
from tests.spark import mapped

SCHEMA = {"id": "int64", "v": "int64"}


@pytest.fixture
def db(tmp_path: Path):
    with st.connect(tmp_path / "db", background=False, segment_bytes=65_536) as store:
        table = store.create_table("t", SCHEMA, primary_key="id")
        for turn in range(4):
            table.upsert([{"id": n, "v": turn} for n in range(turn * 10, 100)])
            store.checkpoint()
        yield store


def rows(table) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}


def test_a_merge_on_spark_beside_the_owner_changes_no_answer(spark: SparkSession, db) -> None:
    expected = rows(db["t"])
    found = merge(spark, db.path)
    assert isinstance(found, st.Merged)
    assert (found.tables, found.rows) == (("t",), 100)
    assert rows(db["t"]) == expected
    db["t"].upsert([{"id": n, "v": 9} for n in range(50, 60)])
    db["t"].delete(list(range(5)))
    db.checkpoint()
    expected = rows(db["t"])
    merge(spark, db.path, "t")
    db.merge()  # finds it done, and takes it over
    assert rows(db["t"]) == expected
    assert db.verify(deep=True).is_sound


def test_merges_on_spark_hide_rows_and_find_those_that_are_hidden(
    spark: SparkSession, db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "COMPACT_BELOW_ROWS", 0)
    merge(spark, db.path)
    for turn in range(4):
        db["t"].upsert([{"id": n, "v": 50 + turn} for n in range(turn, 100, 17)])
        db["t"].delete([90 + turn])
        db.checkpoint()
        expected = rows(db["t"])
        found = merge(spark, db.path, "t")
        assert isinstance(found, st.Merged)
        assert found.rows < 30
        db.merge()
        assert rows(db["t"]) == expected
        shown = lance.dataset(db.path / "tables/t-1/base")
        assert {r["id"]: r["v"] for r in shown.to_table().to_pylist()} == expected
    (storage,) = db._core.state().view.record.keyed
    assert storage.base.hidden > 0
    assert db.verify(deep=True).is_sound


def test_an_optimize_on_spark_makes_one_file_of_many(spark: SparkSession, db) -> None:
    expected = rows(db["t"])
    past = rows(db.snapshot(seq=3)["t"])
    found = optimize(spark, str(db.path), table="t")
    assert isinstance(found, st.Optimized)
    assert (found.files_before, found.files_after) == (4, 1)
    assert rows(db["t"]) == expected
    db.merge()
    assert rows(db["t"]) == expected
    assert rows(db.snapshot(seq=3)["t"]) == past


def test_an_optimize_on_spark_builds_what_indexes_lack(
    spark: SparkSession, db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_plan, "SHARE_ROWS", 100)
    monkeypatch.setattr(merging, "COMPACT_BELOW_ROWS", 0)
    schema = {"id": "int64", "words": "string", "place": "vector(float32, 2)"}
    table = db.create_table("docs", schema, primary_key="id")
    for turn in range(4):
        ids = range(turn * 100, turn * 100 + 100)
        table.upsert([{"id": n, "words": f"w{n % 7}", "place": [n, 0]} for n in ids])
        db.checkpoint()
        db.merge()
    for name, kind in (("id", "btree"), ("words", "fts"), ("place", "vector")):
        table.create_index(name, kind, build=False)
    found = optimize(spark, db.path, "docs", target_rows=2)
    assert isinstance(found, st.Optimized)
    assert (found.segments, found.indexed_rows) == (12, 1_200)
    db.merge()
    assert [index.lagging_rows for index in table.indexes()] == [0, 0, 0]
    assert [row["id"] for row in table.search([250.0, 0.0], k=3, column="place")] == [250, 249, 251]
    assert len(table.search("w3", k=400, column="words").to_pylist()) == 57
    assert table.count("id >= 100") == 300
    assert db.verify(deep=True).is_sound


def docs_in(db) -> st.Table:
    """Return a merged table with indexes that are not built yet."""
    schema = {"id": "int64", "few": "string", "words": "string", "place": "vector(float32, 2)"}
    table = db.create_table("docs", schema, primary_key="id")
    table.upsert(
        [{"id": n, "few": f"{n % 3}", "words": f"w{n % 7}", "place": [n, 0]} for n in range(400)]
    )
    db.checkpoint()
    db.merge()
    kinds = {"id": "btree", "few": "bitmap", "words": "fts", "place": "vector"}
    for name, kind in kinds.items():
        table.create_index(name, kind, build=False)
    return table


def lags(db) -> list[int]:
    db._parts.owner.checkpointer.refresh()  # takes over what was published
    return [index.lagging_rows for index in db["docs"].indexes()]


@pytest.mark.parametrize("is_owned", [True, False])
def test_spark_builds_the_indexes_of_a_store_with_and_without_an_owner(
    spark: SparkSession, db, is_owned: bool
) -> None:
    docs_in(db)
    if not is_owned:
        db.close()
    assert index(spark, db.path, "docs") == CaughtUp(("docs",), 4, 1_600)
    assert index(spark, db.path) == CaughtUp((), 0, 0)
    with contextlib.nullcontext(db) if is_owned else st.connect(db.path, background=False) as found:
        assert lags(found) == [0] * 4
        table = found["docs"]
        near = table.search([250.0, 0.0], k=3, column="place")
        assert [row["id"] for row in near] == [250, 249, 251]
        assert len(table.search("w3", k=400, column="words").to_pylist()) == 57
        assert (table.count("id >= 100"), table.count("few = '1'")) == (300, 133)
        assert found.verify(deep=True).is_sound


def test_an_executor_that_cannot_build_fails_the_call_and_changes_nothing(
    spark: SparkSession, db, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs_in(db)
    with monkeypatch.context() as patch:
        patch.setattr(index_plan.IndexTask, "shares", lambda _: (mapped.Failing(),))
        with pytest.raises(PySparkException, match="the disk of the executor is full"):
            index(spark, db.path)
    assert lags(db) == [400] * 4
    assert index(spark, db.path) == CaughtUp(("docs",), 4, 1_600)


def test_a_merge_on_spark_stays_though_an_executor_cannot_build_behind_it(
    spark: SparkSession, db, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = docs_in(db)
    table.upsert({"id": 400, "few": "1", "words": "w1", "place": [400, 0]})
    db.checkpoint()
    with monkeypatch.context() as patch:
        patch.setattr(index_plan.IndexTask, "shares", lambda _: (mapped.Failing(),))
        found = merge(spark, db.path, "docs")
    assert isinstance(found, st.Merged)
    assert (found.tables, found.rows) == (("docs",), 1)
    assert "the disk of the executor is full" in caplog.text
    assert lags(db) == [401] * 4


def test_maintenance_of_no_store_or_no_table_is_refused(spark: SparkSession, db, tmp_path) -> None:
    with pytest.raises(st.RequestError, match="no such directory"):
        merge(spark, tmp_path / "nowhere")
    with pytest.raises(st.TableNotFoundError, match="nope"):
        optimize(spark, db.path, "nope")
    with pytest.raises(st.RequestError, match="no such directory"):
        index(spark, tmp_path / "nowhere")
    with pytest.raises(st.TableNotFoundError, match="nope"):
        index(spark, db.path, "nope")


# the merge after a large write


def merged_seq(path: Path) -> int:
    with st.connect(path, read_only=True) as store:
        (table,) = store.status().tables
        return table.merged_seq


def newer(spark: SparkSession) -> DataFrame:
    return spark.range(0, 60, 1, 2).selectExpr("id", "7L as v")


WANTED = {n: 7 if n < 60 else 3 for n in range(100)}


def test_a_large_transaction_is_merged_on_spark_after_its_commit(spark: SparkSession, db) -> None:
    with transaction(db, token=("etl", 1)) as tx:
        tx.write(newer(spark), "t")
    assert merged_seq(db.path) == 0  # not large
    with transaction(db, token=("etl", 2), merge="always") as tx:
        tx.write(newer(spark), "t")
    assert merged_seq(db.path) == tx.seq
    assert rows(db["t"]) == WANTED
    with pytest.raises(st.RequestError, match="merge must be one of auto, off, always; got 'yes'"):
        transaction(db, merge="yes")


def test_a_large_write_through_an_owner_leaves_its_merge_to_the_owner(
    spark: SparkSession, db
) -> None:
    db.serve_local()
    write = newer(spark).write.format("siltstone").mode("append").options(uri=str(db.path))
    for choice in ("off", "always"):
        write.options(table="t", merge=choice).save()
        assert rows(db["t"]) == WANTED
        assert merged_seq(db.path) == 0
    db.merge()
    assert merged_seq(db.path) == db.seq
    assert rows(db["t"]) == WANTED


def test_a_commit_that_owned_the_store_says_what_is_due_and_how_to_do_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with st.connect(tmp_path / "db", background=False) as store:
        store.create_table("t", SCHEMA, primary_key="id").upsert({"id": 1, "v": 1})
    automatic_merge.report(store, ())
    assert caplog.text == ""  # a store of one row has nothing due
    automatic_merge.report(store, ["t"])
    assert f"due: merge of t; run `siltstone merge --db {tmp_path / 'db'}`" in caplog.text


def test_a_merge_that_fails_is_told_to_the_log_alone(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    automatic_merge.merge_on(spark, tmp_path / "nowhere", ["t"])
    assert "the rows are committed; merging 't' failed" in caplog.text
    assert "no such directory" in caplog.text


def test_only_what_lies_above_a_base_in_large_numbers_is_due(spark: SparkSession, db) -> None:
    stage = db.stage("t", "upsert")
    few, many = (Staged(stage.job, Files(count, (), (), ())) for count in (10, MERGE_ROWS_MIN))
    piece = FramePiece(stage, pa.schema([]), is_overwrite=False, whole=None, application=None)
    assert automatic_merge.due(db, [StageJob(piece, (few,))], "auto") == []
    assert automatic_merge.due(db, [StageJob(piece, (few,))], "always") == ["t"]
    assert automatic_merge.due(db, [StageJob(piece, (many,))], "off") == []
    # It is large, but what lies above the base is not: somebody was faster.
    assert automatic_merge.due(db, [StageJob(piece, (many,))], "auto") == []
