"""A batch of changes has each change of its range once, in columns that Delta's readers know."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st

SCHEMA = {"id": "int64", "v": "string"}
MARKS = ["_change_type", "_commit_version", "_commit_timestamp"]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False, segment_bytes=65_536) as found:
        found.create_table("t", SCHEMA, primary_key="id")
        found.create_table("plain", SCHEMA)
        found.serve_local()
        yield found


def load(spark: SparkSession, db: st.Store, table: str = "t", **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    reader = spark.read.format("siltstone").options(uri=str(db.path), table=table, **given)
    return reader.option("readChangeFeed", "true").load()


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    """Return (version, type, id, v) in the order of the commits."""
    picked = frame.select("_commit_version", "_change_type", "id", "v").collect()
    return sorted((tuple(row) for row in picked), key=repr)


def test_the_changes_of_any_range_are_those_of_a_dict(spark: SparkSession, db: st.Store) -> None:
    rolled = random.Random(22)
    made: list[tuple[object, ...]] = []
    state: dict[int, str] = {}
    states = {db.seq: dict(state)}
    first = db.seq + 1
    for step in range(24):
        keys = rolled.sample(range(9), 3)
        if step % 4 == 3:
            db["t"].delete(keys)
            made += [(db.seq, "delete", key, None) for key in keys]
            state = {key: v for key, v in state.items() if key not in keys}
        elif step == 14:
            db["t"].truncate()
            made += [(db.seq, "delete", key, None) for key in state]
            state = {}
        else:
            db["t"].upsert([{"id": key, "v": str(step)} for key in keys])
            made += [(db.seq, "update_postimage", key, str(step)) for key in keys]
            state |= dict.fromkeys(keys, str(step))
        states[db.seq] = dict(state)
        if step in {6, 16}:
            db.checkpoint()
            db.merge()
    last = db.seq
    for start, end in [
        (first, last),
        (first + 5, first + 14),
        (last, last),
        (first + 3, first + 3),
    ]:
        found = rows(load(spark, db, startingVersion=start, endingVersion=end))
        assert found == sorted((m for m in made if start <= m[0] <= end), key=repr), (start, end)
    assert rows(load(spark, db, startingVersion=first)) == sorted(made, key=repr)
    # Applied in the order of the versions they make the table of the end from that of the start.
    copy = dict(states[first + 4])
    feed = load(spark, db, startingVersion=first + 5, endingVersion=first + 14)
    for row in feed.orderBy("_commit_version").collect():
        copy.pop(row["id"], None)
        if row["_change_type"] != "delete":
            copy[row["id"]] = row["v"]
    assert copy == states[first + 14]


def test_a_change_has_the_time_of_its_commit(spark: SparkSession, db: st.Store) -> None:
    for n in range(3):
        db["t"].upsert({"id": n}, missing="null")
        if n == 1:
            db.checkpoint()
    times = {entry.seq: entry.time for entry in db.log(10)}
    found = load(spark, db, startingVersion=1)
    assert found.columns == ["id", "v", *MARKS]
    shown = {row["_commit_version"]: row["_commit_timestamp"] for row in found.collect()}
    assert len(shown) == 3
    assert {seq: time.astimezone(dt.UTC) for seq, time in shown.items()} == {
        seq: times[seq] for seq in shown
    }


def test_a_range_goes_by_times_both_inclusive(spark: SparkSession, db: st.Store) -> None:
    for n in range(4):
        db["t"].upsert({"id": n}, missing="null")
    at = {entry.seq: entry.time.isoformat() for entry in db.log(10)}
    first, last = db.seq - 2, db.seq - 1
    found = load(spark, db, startingTimestamp=at[first], endingTimestamp=at[last])
    assert {row["id"] for row in found.collect()} == {1, 2}
    assert load(spark, db, startingTimestamp=at[last], endingVersion=db.seq).count() == 2


def test_a_frame_of_changes_ends_at_its_load(spark: SparkSession, db: st.Store) -> None:
    db["t"].upsert({"id": 1}, missing="null")
    frame = load(spark, db, startingVersion=1)
    own = (
        spark.read.format("siltstone")
        .options(uri=str(db.path), table="t", readChangeFeed="true", startingVersion=1)
        .schema("_commit_version bigint, id bigint")
        .load()
    )
    assert own.count() == 1
    db["t"].upsert({"id": 2}, missing="null")
    assert (frame.count(), own.count()) == (1, 1)
    assert load(spark, db, startingVersion=1).count() == 2
    assert load(spark, db, startingVersion=db.seq + 1).count() == 0  # for who polls: not yet


def test_rows_whose_first_versions_are_gone_come_as_inserts(
    spark: SparkSession, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "old", background=False, retention="0s") as db:
        db.create_table("t", SCHEMA, primary_key="id")
        for n in range(3):
            db["t"].upsert({"id": n, "v": "old"})
            db.checkpoint()
        db.merge()
        db["t"].upsert({"id": 0, "v": "between"})
        db.checkpoint()
        db.merge()
        db.vacuum(dry_run=False, grace_s=0)
        db["t"].upsert({"id": 1, "v": "new"})
        found = rows(load(spark, db, startingVersion=0))
        assert {row[1:] for row in found if row[1] == "insert"} == {
            ("insert", 0, "between"), ("insert", 1, "old"), ("insert", 2, "old")
        }  # fmt: skip
        assert [row[1:] for row in found if row[1] != "insert"] == [("update_postimage", 1, "new")]
        with pytest.raises(Exception, match=r"SnapshotExpiredError: .* the store keeps seq"):
            load(spark, db, startingVersion=3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "option 'startingVersion' is missing: the first version"),
        ({"startingVersion": 1, "table": "plain"}, "plain table: it has versions, not changes"),
        ({"startingVersion": 1, "endingVersion": 99}, "SnapshotExpiredError: .*until version 99"),
        ({"startingVersion": 99}, "SnapshotExpiredError: .*since version 99"),
        ({"startingVersion": "latest"}, "no start 'latest'; give a version or a time"),
        ({"startingVersion": 3, "endingVersion": 2}, "ends at 2, before it begins, at 3"),
        ({"startingSeq": 3, "endingVersion": 2}, "ends at 2, before it begins, at 3"),
        (
            {"startingVersion": 1, "startingTimestamp": "2026-11-20T10:00Z"},
            "give only one of the options 'startingVersion' and 'startingTimestamp'",
        ),
        ({"startingTimestamp": "soon"}, "option 'startingTimestamp': a time must be like .*'soon'"),
        ({"startingVersion": 1, "seq": 1}, "a batch read of changes has no option 'seq'"),
        ({"startingVersion": 1, "readChangeFeed": "yes"}, "must be one of true, false; got 'yes'"),
    ],
)
def test_bad_input_of_a_batch_of_changes_is_one_sentence(
    spark: SparkSession, db: st.Store, options: dict[str, object], said: str
) -> None:
    given = {"uri": db.path, "table": "t", "readChangeFeed": "true", **options}
    reader = spark.read.format("siltstone").options(**{n: str(v) for n, v in given.items()})
    with pytest.raises(Exception, match=said):
        reader.load()


def test_a_stream_of_changes_begins_with_a_version_or_a_time(
    spark: SparkSession, db: st.Store, tmp_path: Path
) -> None:
    for n in range(4):
        db["t"].upsert({"id": n}, missing="null")
    third = next(entry for entry in db.log(10) if entry.seq == db.seq - 1)
    starts = {"startingVersion": third.seq, "startingTimestamp": third.time.isoformat()}
    for name, value in starts.items():
        stream = (
            spark.readStream.format("siltstone")
            .options(uri=str(db.path), table="t", **{name: str(value)})
            .load()
        )
        assert stream.columns == ["_seq", "_op", "id", "v"]
        query = (
            stream.writeStream.format("memory")
            .queryName("changes")
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert {row["id"] for row in spark.table("changes").collect()} == {2, 3}
    with pytest.raises(Exception, match="a stream is a change feed already"):
        spark.readStream.format("siltstone").options(
            uri=str(db.path), table="t", readChangeFeed="true", startingVersion="1"
        ).load().writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "c")
        ).start().awaitTermination()


def test_a_missing_table_is_named_also_where_the_caller_gives_the_columns(
    spark: SparkSession, db: st.Store
) -> None:
    given = {"uri": str(db.path), "table": "tt", "readChangeFeed": "true", "startingVersion": "1"}
    frame = spark.read.schema("id bigint").format("siltstone").options(**given).load()
    with pytest.raises(Exception, match="TableNotFoundError: there is no table 'tt'"):
        frame.count()
