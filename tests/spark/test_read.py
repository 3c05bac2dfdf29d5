"""Spark reads what `db.snapshot` reads: all levels, any kept seq, beside any owner."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

import siltstone as st
from siltstone.spark import snapshot
from siltstone.spark.context import schemas
from siltstone.spark.context.options import ReadOptions
from siltstone.spark.reads.reader import BatchReader, describe
from tests.spark.stores import fill, owner


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Store]:
    path = tmp_path_factory.mktemp("read") / "store"
    with st.connect(path, background=False, segment_bytes=65_536) as store:
        fill(store)
        yield store


def load(spark: SparkSession, path: Path, table: str = "t", **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("siltstone").options(uri=str(path), table=table, **given).load()


def same(frame: DataFrame, wanted: pa.Table) -> bool:
    """Compare by text: a NaN equals no NaN in Python."""
    return sorted(map(str, frame.toArrow().to_pylist())) == sorted(map(str, wanted.to_pylist()))


def test_a_frame_has_the_rows_of_all_levels(spark: SparkSession, db: st.Store) -> None:
    for table in db.tables():
        assert same(load(spark, db.path, table), db[table].to_arrow()), table
    assert load(spark, db.path, "empty").count() == 0


def test_a_frame_is_as_of_a_seq_a_tag_or_a_moment(spark: SparkSession, db: st.Store) -> None:
    for seq in (db.tags()["audit"], db.seq - 1):
        with db.snapshot(seq=seq) as past:
            assert same(load(spark, db.path, seq=seq), past["t"].to_arrow())
    with db.snapshot(tag="audit") as past:
        assert same(load(spark, db.path, tag="audit"), past["t"].to_arrow())
        moment = next(entry.time for entry in db.log(100) if entry.seq == past.seq)
        assert same(load(spark, db.path, at=moment), past["t"].to_arrow())


def test_columns_are_given_in_the_order_of_the_option(spark: SparkSession, db: st.Store) -> None:
    frame = load(spark, db.path, columns="v,id")
    assert frame.columns == ["v", "id"]
    assert same(frame, db["t"].to_arrow(columns=["v", "id"]))


def test_a_schema_of_the_callers_own_picks_columns(spark: SparkSession, db: st.Store) -> None:
    reader = spark.read.format("siltstone").options(uri=str(db.path), table="t")
    frame = reader.schema("name string, id bigint").load()
    assert same(frame, db["t"].to_arrow(columns=["name", "id"]))


def test_a_frame_stays_as_of_its_load(spark: SparkSession, tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False) as db:
        db.create_table("t", {"id": "int64"}, primary_key="id").insert([{"id": 1}])
        frame = load(spark, db.path)
        reader = spark.read.format("siltstone").options(uri=str(db.path), table="t")
        own = reader.schema("id bigint").load()
        assert own.count() == 1  # nobody asked it for a schema: as of its first use
        db["t"].insert({"id": 2})
        db["t"].add_column("note", "string")
        for each in (frame, own):
            assert each.count() == 1
            assert each.where("id < 5").union(each).count() == 2
        assert load(spark, db.path).columns == ["id", "note"]


def test_frames_of_a_snapshot_have_one_seq(spark: SparkSession, tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False, retention="0s") as db:
        fill(db)
        with snapshot(spark, db) as snap, db.snapshot() as wanted:
            assert snap.seq == db.seq
            frames = {name: wanted[name].to_arrow() for name in wanted.tables()}
            assert snap.tables() == sorted(frames)
            assert snap.create_views(prefix="shop_") == [f"shop_{name}" for name in sorted(frames)]
            with db.transaction() as tx:
                tx["t"].delete_where("true")
                tx["events"].truncate()
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
            assert all(same(snap[name], frames[name]) for name in frames)
            assert spark.sql("select count(*) n from shop_t").first()["n"] == len(frames["t"])
            picked = snap.read("t", columns=["id"], filter="name LIKE 'log%'")
            assert picked.columns == ["id"]
            assert picked.count() == wanted["t"].count("name LIKE 'log%'")
            frame, hidden = snap["t"], frames["t"]
        assert not spark.catalog.tableExists("shop_t")
        assert frame.where("id is not null").count() == len(hidden)


def test_spark_reads_beside_an_owner_in_another_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    with owner(path, "fill"), st.connect(path, read_only=True) as here, snapshot(spark, path) as s:
        assert same(s["t"], here["t"].to_arrow())
        assert same(load(spark, path), here["t"].to_arrow())


def test_a_seq_that_is_gone_or_not_there_yet_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with st.connect(tmp_path / "s", background=False, retention="0s") as db:
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        for n in range(3):
            table.upsert({"id": n})
            db.checkpoint()
        late = load(spark, db.path, seq=db.seq - 1)
        db.merge()
        table.upsert({"id": 9})
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        with pytest.raises(Exception, match=r"SnapshotExpiredError: .* the store keeps seq"):
            late.count()
        with pytest.raises(Exception, match="SnapshotExpiredError: cannot read at seq 99"):
            load(spark, db.path, seq=99)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "option 'uri' is missing"),
        ({"uri": "/nowhere", "table": "t"}, "/nowhere is not a store: there is no such directory"),
        ({"uri": "STORE"}, "option 'table' is missing"),
        ({"uri": "STORE", "table": "x"}, "no table 'x'"),
        ({"uri": "STORE", "table": "t", "sequ": "1"}, "a read has no option 'sequ'"),
        ({"uri": "STORE", "table": "t", "columns": "id,x"}, "table 't' has no column 'x'"),
        ({"uri": "STORE", "table": "t", "filter": "x > 1"}, "no column 'x'"),
        ({"uri": "STORE", "table": "t", "tag": "x"}, "no tag 'x'"),
    ],
)
def test_bad_input_of_a_read_is_said_at_load(
    spark: SparkSession, db: st.Store, options: dict[str, str], said: str
) -> None:
    given = {name: str(db.path) if value == "STORE" else value for name, value in options.items()}
    with pytest.raises(Exception, match=said):
        spark.read.format("siltstone").options(**given).load()


def test_a_schema_that_does_not_fit_names_both_types(spark: SparkSession, db: st.Store) -> None:
    reader = spark.read.format("siltstone").options(uri=str(db.path), table="t")
    with pytest.raises(Exception, match="column 'v' of 't' is double, not int"):
        reader.schema("v int").load().count()


def test_an_executor_that_does_not_see_the_store_says_so(db: st.Store, tmp_path: Path) -> None:
    schema, seq = describe(ReadOptions(str(db.path), "t"))
    reader = BatchReader(ReadOptions(str(db.path), "t", seq=seq), schema)
    partitions = reader.partitions()
    there = pickle.loads(pickle.dumps(reader))
    rows = [batch for part in partitions for batch in there.read(part)]
    assert {batch.schema for batch in rows} == {schemas.arrow_schema(schema)}
    assert sum(batch.num_rows for batch in rows) == db["t"].count()
    assert list(there.read(InputPartition(None))) == []
    hidden = tmp_path / "hidden"
    db.path.rename(hidden)
    try:
        with pytest.raises(st.UnavailableError, match=r"executor on .* sees no store at"):
            next(there.read(partitions[0]))
    finally:
        hidden.rename(db.path)
