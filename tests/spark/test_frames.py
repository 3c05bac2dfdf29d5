"""The frames of a snapshot: Spark knows their size and parts, and tasks say what is wrong."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import schemas, snapshot
from siltstone.spark.application import Application, Read
from siltstone.spark.frames import WITH_FUNCTION_BYTES_MAX, PlannedRows, frame_of
from siltstone.spark.partitions import Cut, row_bytes, size_of
from siltstone.spark.task_rows import Told

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


def bytes_in(frame: DataFrame) -> int:
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def joined(one: DataFrame, other: DataFrame) -> str:
    plan: str = one.join(other, "id")._jdf.queryExecution().executedPlan().toString()
    return plan


def of_a_billion_rows(spark: SparkSession, db: st.Store) -> DataFrame:
    """A frame of some tasks that claim to have many rows; it is planned and not read."""
    with db.snapshot() as now:
        (tasks,) = Cut(1).partitions(now, "small", ["id", "v", "name"], None)
        schema = now["small"].schema
    many = [tuple(replace(task, rows=1_000_000) for task in tasks)] * 1_000
    told = Told(Read("", 0, "small", 0), None, is_local=True)
    made = partial(PlannedRows, "many rows", schemas.to_spark(schema), told, None)
    return frame_of(spark, many, size_of(many, schema), made)[0]


def test_a_small_table_is_broadcast_and_a_large_one_is_not(
    spark: SparkSession, db: st.Store
) -> None:
    huge = of_a_billion_rows(spark, db)
    with snapshot(spark, db) as snap:
        width = row_bytes(db["large"].schema)
        assert width == 8 + 8 + 8 + 20
        assert bytes_in(snap.read("small")) == 4 * width // 8 * 8
        assert bytes_in(snap.read("large")) == pytest.approx(ROWS * width, rel=0.001)
        for name, count in (("small", 4), ("large", ROWS)):
            assert count * width / 4 < bytes_in(snap[name]) < count * width / 2
            assert bytes_in(snap[name].select("id")) <= bytes_in(snap[name])
        assert bytes_in(snap.read("large", ["id"])) == pytest.approx(ROWS * 16, rel=0.001)
        assert bytes_in(huge) == pytest.approx(1e9 * width, rel=0.001)
        assert "BroadcastHashJoin" in joined(snap["large"], snap["small"])
        large = snap.read("large")
        assert "SortMergeJoin" in joined(large, large.where("v >= 0"))
        assert "SortMergeJoin" in joined(huge, huge.where("v >= 0"))
        assert "BroadcastHashJoin" in joined(huge, snap["small"])
        assert "BroadcastHashJoin" in joined(snap.read("large"), snap.read("small"))
        assert snap["large"].join(snap["small"], "id").count() == 4


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
        with pytest.raises(st.RequestError, match="rows_max must be an integer from 1"):
            snap.read("large", rows_max=-1)
    reader = spark.read.format("siltstone").options(uri=str(db.path), table="large")
    frame = reader.option("maxRowsPerTask", "50000").load()
    assert frame.rdd.getNumPartitions() == 7
    assert frame.count() == ROWS
    with pytest.raises(Exception, match="option 'maxRowsPerTask' must be an integer from 1"):
        reader.option("maxRowsPerTask", "0").load()


def test_rows_of_the_log_travel_in_a_broadcast_that_ends_with_the_snapshot(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Path(spark.sparkContext._temp_dir)
    before = set(files.iterdir())
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert(rows(np.arange(40_000)))
        with snapshot(spark, db) as snap:
            frame = snap["t"]
            assert max(file.stat().st_size for file in set(files.iterdir()) - before) > (
                WITH_FUNCTION_BYTES_MAX
            )
            assert frame.where("id % 2 = 0").count() == 20_000
            assert frame.union(frame).count() == 80_000
        assert set(files.iterdir()) == before
        with pytest.raises(Exception, match="destroyed"):
            frame.collect()


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


def test_an_executor_that_does_not_see_the_store_says_so_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert(rows(np.arange(4)))
    with snapshot(spark, tmp_path / "s") as snap:
        frame = snap["t"]
        (tmp_path / "s").rename(tmp_path / "hidden")
        with pytest.raises(Exception, match=r"UnavailableError: the executor on .* sees no store"):
            frame.collect()


def test_a_task_asks_the_drivers_machine_alone_whether_the_snapshot_is_open(
    db: st.Store, tmp_path: Path
) -> None:
    with db.snapshot() as now:
        partitions = Cut(1).partitions(now, "small", ["id"], None)
        read = Read("store", now["small"].id, "small", now.seq)
    schema = schemas.to_spark(pa.schema([db["small"].schema.field("id")]))
    here, elsewhere = Application(str(tmp_path / "blockmgr-1")), Application("/no/blockmgr-2")
    mark = tmp_path / "blockmgr-1" / "open"
    mark.mkdir(parents=True)
    packed = tuple(pickle.dumps(tasks) for tasks in partitions)
    near = PlannedRows("rows", schema, Told(read, here), str(mark), 7, packed)
    far = replace(near, told=Told(read, elsewhere))

    def ids(asked: PlannedRows) -> list[int]:
        there = pickle.loads(pickle.dumps(asked))
        batches = there([pa.RecordBatch.from_pydict({"id": [0]})])
        return sorted(number for batch in batches for number in batch["id"].to_pylist())

    assert here.seen("store", read.table, "small").since is None
    assert ids(near) == ids(far) == [0, 1, 2, 3]
    assert here.seen("store", read.table, "small").since == read.seq
    mark.rmdir()
    assert ids(far) == [0, 1, 2, 3]
    with pytest.raises(st.ClosedError, match="the snapshot of this frame is closed"):
        ids(near)


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


def test_each_query_of_a_live_view_shows_the_newest_rows_beside_a_pinned_one(
    spark: SparkSession, tmp_path: Path
) -> None:
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
