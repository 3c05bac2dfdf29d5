"""Frames and views of a snapshot are those of a catalog at its seq; without a jar, of `load()`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import register, snapshot
from siltstone.spark.reads.partitions import row_bytes
from siltstone.spark.sessions import snapshots

ROWS = 320_000
SCHEMA = {"id": "int64", "v": "float64", "name": "string"}


def rows(ids: np.ndarray) -> pa.Table:
    names = pa.array([f"n{n % 10}" for n in ids.tolist()])
    return pa.table({"id": ids, "v": ids / 4, "name": names})


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    path = tmp_path_factory.mktemp("frames") / "store"
    with st.connect(path, background=False) as store:
        store.create_table("large", SCHEMA, primary_key="id").upsert(rows(np.arange(ROWS)))
        store.create_table("small", SCHEMA, primary_key="id").upsert(rows(np.arange(4)))
        store.create_table("empty", SCHEMA, primary_key="id")
        store.checkpoint()
        store.merge()
        yield store


@pytest.fixture
def without_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "catalog_of", lambda *_: None)


def plan_of(frame: DataFrame) -> str:
    text: str = frame._jdf.queryExecution().executedPlan().toString()
    return text


def bytes_in(frame: DataFrame) -> int:
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


# --- which catalog


def test_a_snapshot_uses_the_catalog_that_the_session_has_of_its_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("a.b-c.t", {"id": "int64"}, "id").insert([{"id": 1}])
        other = spark.newSession()
        register(other, stores={"named_shop": db.path})
        for session, said in ((spark, "siltstone_"), (other, "named_shop")):
            with snapshot(session, db) as now:
                assert now["a.b-c.t"].collect() == [(1,)]
                assert now._catalog is not None
                assert now._catalog.startswith(said)
        with snapshot(spark, db) as again, snapshot(spark, db) as more:
            assert again._catalog == more._catalog


def test_frames_of_a_closed_snapshot_can_be_read_and_keep_their_seq(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "s", background=False, retention="0s") as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert(rows(np.arange(3)))
        with snapshot(spark, db) as now:
            frame = now["t"]
        with pytest.raises(st.ClosedError):
            _ = now["t"]
        table.delete([0, 1, 2])
        for _ in range(2):
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
            table.upsert(rows(np.arange(7, 9)))
        assert frame.count() == len(frame.collect()) == 3


def test_a_thread_that_does_not_see_an_added_jar_has_snapshots_too(
    spark: SparkSession, db: st.Store
) -> None:
    with snapshot(spark, db):
        lang = spark._jvm.java.lang
    # As that of a stream that was started before another thread added the jar.
    lang.Thread.currentThread().setContextClassLoader(lang.ClassLoader.getSystemClassLoader())
    with snapshot(spark.newSession(), db) as now:
        assert now["small"].count() == 4


# --- sizes and tasks


def test_a_small_table_is_broadcast_and_a_large_one_is_not(
    spark: SparkSession, db: st.Store
) -> None:
    with snapshot(spark, db) as snap:
        width = row_bytes(db["large"].schema)
        assert width == 8 + 8 + 8 + 20
        assert bytes_in(snap["small"]) == 4 * width
        assert bytes_in(snap["large"]) == ROWS * width
        assert bytes_in(snap.read("large", ["id"])) == ROWS * 16
        large = snap["large"]
        assert "BroadcastHashJoin" in plan_of(large.join(snap["small"], "id"))
        assert "SortMergeJoin" in plan_of(large.join(large.where("v >= 0"), "id"))
        assert large.join(snap["small"], "id").count() == 4


def test_a_large_file_is_read_by_as_many_tasks_as_spark_runs_at_once(
    spark: SparkSession, db: st.Store
) -> None:
    with snapshot(spark, db) as snap:
        parallelism = spark.sparkContext.defaultParallelism
        assert snap["large"].rdd.getNumPartitions() == parallelism == 2
        assert snap["small"].rdd.getNumPartitions() == 1
        assert snap["empty"].count() == 0
        finer = snap.read("large", rows_max=50_000)
        assert finer.rdd.getNumPartitions() == 7
        for frame in (snap["large"], finer):
            total = frame.selectExpr("count(*) n", "sum(id) s", "count(distinct id) d").first()
            assert total is not None
            assert tuple(total) == (ROWS, ROWS * (ROWS - 1) // 2, ROWS)
        for wrong in (-1, 0, True, 1.5):
            with pytest.raises(st.RequestError, match="rows_max must be an integer from 1"):
                snap.read("large", rows_max=wrong)  # type: ignore[arg-type]
    reader = spark.read.format("siltstone").options(uri=str(db.path), table="large")
    frame = reader.option("maxRowsPerTask", "50000").load()
    assert frame.rdd.getNumPartitions() == 7
    assert frame.count() == ROWS
    with pytest.raises(Exception, match="option 'maxRowsPerTask' must be an integer from 1"):
        reader.option("maxRowsPerTask", "0").load()


def test_a_read_through_a_catalog_says_which_options_it_has(
    spark: SparkSession, db: st.Store
) -> None:
    with snapshot(spark, db) as snap:
        table = f"{snap._catalog}.small"
        asked = spark.sql(f"SELECT id FROM {table} WITH (filter = 'id > 1 -- most')")
        assert sorted(asked.collect()) == [(2,), (3,)]
        assert asked.where("id < 3").collect() == [(2,)]
        assert spark.read.option("filter", "v = 0.25").table(table).count() == 1
        assert asked.limit(1).count() == 1
        with pytest.raises(Exception, match="has no option 'header'; it has filter and maxRows"):
            spark.read.option("header", "true").table(table).collect()
        with pytest.raises(Exception, match="option 'maxRowsPerTask' must be an integer from 1"):
            spark.read.option("maxRowsPerTask", "0").table(table).collect()
        with pytest.raises(Exception, match="no column 'x'"):
            spark.read.option("filter", "x > 1").table(table).collect()


def test_times_are_the_same_in_any_time_zone_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        fields = {"id": "int64", "at": "timestamp[us, tz=UTC]", "local": "timestamp[us]"}
        table = db.create_table("t", fields, primary_key="id")
        at = dt.datetime(2026, 11, 20, 10, tzinfo=dt.UTC)
        table.upsert({"id": 1, "at": at, "local": at.replace(tzinfo=None)})
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            with snapshot(spark, db) as snap:
                found = snap["t"].selectExpr("unix_micros(at) a", "string(local) l").first()
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        assert found is not None
        assert tuple(found) == (1_795_168_800_000_000, "2026-11-20 10:00:00")


def test_a_read_of_a_store_that_was_moved_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert(rows(np.arange(4)))
    with snapshot(spark, tmp_path / "s") as snap:
        frame = snap["t"]
        (tmp_path / "s").rename(tmp_path / "hidden")
        with pytest.raises(Exception, match="was moved, deleted or replaced"):
            frame.collect()


def test_the_columns_and_the_filter_of_a_read_are_checked_when_it_is_made(
    spark: SparkSession, db: st.Store
) -> None:
    with snapshot(spark, db) as snap:
        assert snap.read("small", ["name", "id"], "id >= 2").columns == ["name", "id"]
        with pytest.raises(st.RequestError, match="no column 'x'"):
            snap.read("small", ["x"])
        with pytest.raises(st.RequestError, match="no column 'x'"):
            snap.read("small", filter="x > 1")
        with pytest.raises(st.RequestError, match="at least one name"):
            snap.read("small", [])
        with pytest.raises(st.TableNotFoundError):
            _ = snap["absent"]


# --- queries


ASKED = [
    "select count(*), sum(id), max(name), count(v) from {t}",
    "select a.id, b.v from {t} a join {t} b on a.id = b.id + 1 where a.v > 1 order by 1",
    "select id from {t} where exists (select 1 from {o} where {o}.id = {t}.id) order by id",
    "select id from {t} where id not in (select id from {o}) order by id limit 20",
    "select id, (select max(v) from {o} where {o}.name = {t}.name) m from {t} order by id",
    "select v, count(*) from (select v from {t} union all select v from {o}) group by v order by v",
    "select id, row_number() over (partition by name order by id desc) n from {t} order by id",
    "select * from (select v, name from {t}) pivot (count(1) for name in ('n1', 'n2')) order by v",
    (
        "select o.id, s.n from {o} o, lateral (select count(*) n from {t} t where t.id < o.id) s"
        " order by 1"
    ),
    "select sum(v / (select max(id) from {t})) from {o}",
    (
        "select a.id from {o} a join {o} b on a.id = b.id and a.id < (select avg(id) from {t})"
        " order by 1"
    ),
]


def test_queries_of_any_form_answer_as_they_do_over_rows_in_hand(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", SCHEMA, "id").upsert(rows(np.arange(40)))
        db.checkpoint()
        db["t"].delete([3, 7])
        db.create_table("other", SCHEMA, "id").upsert(rows(np.arange(5)))
        with snapshot(spark, db) as now, db.snapshot() as wanted:
            now.create_views(["t", "other"])
            for name in ("t", "other"):
                in_hand = spark.createDataFrame(wanted[name].to_arrow())
                in_hand.createOrReplaceTempView(f"hand_{name}")
            for text in ASKED:
                ours = spark.sql(text.format(t="t", o="other")).collect()
                assert ours == spark.sql(text.format(t="hand_t", o="hand_other")).collect(), text
            kept = now["t"].where("v > 1").cache()
            assert kept.count() == kept.select("name").count() == wanted["t"].count("v > 1")
            kept.unpersist()
            for name in ("hand_t", "hand_other"):
                spark.catalog.dropTempView(name)


def test_a_query_reads_the_columns_that_it_uses_and_counts_without_reading(
    spark: SparkSession, db: st.Store
) -> None:
    with snapshot(spark, db) as now:
        now.create_views(["small"])
        for frame in (
            now["small"].where("v > 2").select("v"),
            spark.sql("select sum(v) from small"),
        ):
            assert "name" not in plan_of(frame)
        assert "LocalTableScan" in plan_of(now["small"].groupBy().count())


# --- views


def test_a_view_has_the_columns_that_are_named(spark: SparkSession, db: st.Store) -> None:
    with snapshot(spark, db) as snap:
        snap.create_views(["small", "large"], columns={"large": ["name", "id"]})
        assert spark.table("large").columns == ["name", "id"]
        assert spark.table("small").columns == ["id", "v", "name"]
        assert spark.sql("select count(distinct name) n from large").first()[0] == 10
        with pytest.raises(st.RequestError, match="no view 'other'"):
            snap.create_views(["small"], columns={"other": ["id"]})
        with pytest.raises(st.RequestError, match="no column 'x'"):
            snap.create_views(["small"], columns={"small": ["x"]})
    assert not spark.catalog.tableExists("large")


def test_a_view_may_have_any_name(spark: SparkSession, db: st.Store) -> None:
    with snapshot(spark, db) as snap:
        assert snap.create_views(["small"], prefix="a`b. ") == ["a`b. small"]
        assert spark.sql("select count(*) n from `a``b. small`").first()[0] == 4
    assert "a`b. small" not in [table.name for table in spark.catalog.listTables()]


@pytest.mark.parametrize("jar", [True, False])
def test_each_query_of_a_live_view_shows_the_newest_rows_beside_a_pinned_one(
    spark: SparkSession, tmp_path: Path, jar: bool, request: pytest.FixtureRequest
) -> None:
    if not jar:
        request.getfixturevalue("without_jar")
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("t", SCHEMA, primary_key="id")
        table.upsert(rows(np.arange(3)))
        with snapshot(spark, db) as snap:
            assert snap.create_views(live=True, prefix="live_") == ["live_t"]
            assert snap.create_views(prefix="then_") == ["live_t", "then_t"]
            assert spark.table("live_t").columns == ["id", "v", "name"]
            for count in (3, 4, 5):
                found = spark.sql("select count(*) n, sum(id) s from live_t").first()
                assert tuple(found) == (count, sum(range(count)))
                assert spark.sql("select * from live_t where id > 1").count() == count - 2
                assert spark.sql("select * from live_t union all table live_t").count() == 2 * count
                assert spark.sql("select * from then_t").count() == 3
                table.upsert(rows(np.array([count])))
            snap.create_views(live=True, columns={"t": ["name", "id"]})
            assert spark.table("t").columns == ["name", "id"]
            assert spark.sql("select max(id) m from t").first()[0] == 5
        assert not spark.catalog.tableExists("live_t")


# --- without a jar


def test_without_a_jar_frames_are_those_of_load_at_the_seq(
    spark: SparkSession, tmp_path: Path, without_jar: None
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        table = db.create_table("a.t", SCHEMA, primary_key="id")
        table.upsert(rows(np.arange(30)))
        with snapshot(spark, db) as snap:
            assert snap._catalog is None
            table.delete([0, 1])
            assert snap["a.t"].count() == 30
            assert snap.read("a.t", ["name", "id"], "id < 4 -- few", rows_max=10).columns == [
                "name",
                "id",
            ]
            assert snap.read("a.t", filter="id < 4 -- few", rows_max=10).count() == 4
            snap.create_views(prefix="pinned_", columns={"a.t": ["id"]})
            assert spark.sql("select sum(id) from `pinned_a.t`").first()[0] == 435
