"""Structured streaming: the changes of a table as a source, and a table as an exact sink."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import siltstone as st
from tests.crash.moments import IS_LONG
from tests.spark.stream_driver import STEPS, changes, follow, run_killed

SOURCE = {"id": "int64", "v": "string"}
LOG = {"seq": "int64", "op": "string", "id": "int64", "v": "string"}

Stores = tuple[st.Store, st.Store]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """Give the owners of a store that is followed and of one that is written; both serve."""
    with (
        st.connect(tmp_path / "a", background=False, segment_bytes=65_536) as a,
        st.connect(tmp_path / "b", background=False, segment_bytes=65_536) as b,
    ):
        with a.transaction() as tx:
            tx.create_table("t", SOURCE, primary_key="id")
            tx["t"].upsert([{"id": n, "v": "first"} for n in range(10)])
        b.create_table("log", LOG)
        a.serve_local()
        b.serve_local()
        yield a, b


def put(db: st.Store, step: int) -> None:
    db["t"].upsert([{"id": 10 * (step % 3) + n, "v": str(step)} for n in range(10)])


def fed(db: st.Store) -> list[tuple]:
    return in_order(db.changes(tables=["t"])["t"].read_all().to_pylist())


def logged(db: st.Store) -> list[tuple]:
    return in_order(db["log"].to_arrow().to_pylist())


def in_order(rows: list[dict]) -> list[tuple]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.mark.timeout(1_200)  # drivers, one after the other
def test_a_driver_killed_at_any_step_leaves_each_change_once(
    stores: Stores, spark: SparkSession, tmp_path: Path
) -> None:
    a, b = stores
    steps = STEPS if IS_LONG else STEPS[-1:]  # the others without Spark: test_stream_protocol
    for turn, step in enumerate(steps):
        put(a, turn)
        # The first batch, each time: what it is must not depend on when its driver starts again.
        assert run_killed(tmp_path, step, 0) == -signal.SIGKILL
        assert b["log"].count() == (10 if step == "committed" else 0)
        assert len(a.tags()) == 1
    a["t"].delete([3, 4])
    a.checkpoint()
    follow(spark, tmp_path, "siltstone")
    assert logged(b) == fed(a)
    batches = [entry.token[1] for entry in b.log(100) if entry.token]
    assert batches == list(reversed(range(len(steps) + 2)))
    assert len(a.tags()) == 1


def to_log(spark: SparkSession, stores: Stores, where: Path, **options: object) -> StreamingQuery:
    a, b = stores
    return (
        changes(spark, a.path, **options)
        .writeStream.format("siltstone")
        .option("uri", str(b.path))
        .option("table", "log")
        .option("app", "shared")
        .option("checkpointLocation", str(where))
        .trigger(processingTime="0 seconds")
        .start()
    )


def test_a_running_query_keeps_up_until_another_takes_its_app(
    stores: Stores, spark: SparkSession, tmp_path: Path
) -> None:
    a, b = stores
    put(a, 0)
    older = to_log(spark, stores, tmp_path / "c1", maxRowsPerTrigger=10)
    try:
        for step in (1, 2):
            older.processAllAvailable()
            assert logged(b) == fed(a)
            put(a, step)
        older.processAllAvailable()
        assert max(progress["numInputRows"] for progress in older.recentProgress) == 10
        assert older.lastProgress is not None
        newer = to_log(spark, stores, tmp_path / "c2", startingSeq=a.seq)
        try:
            put(a, 3)
            newer.processAllAvailable()
            put(a, 4)
            with pytest.raises(StreamingQueryException, match=r"FencedError.*'shared' ended"):
                older.processAllAvailable()
        finally:
            newer.stop()
    finally:
        older.stop()


def test_a_stream_of_deletes_and_null_columns_arrives_as_it_is(
    stores: Stores, spark: SparkSession, tmp_path: Path
) -> None:
    a, b = stores
    put(a, 0)
    b.create_table("copy", SOURCE, primary_key="id")
    b["copy"].upsert(a["t"].to_arrow())
    since = a.seq
    a["t"].delete([1, 2])
    a["t"].truncate()
    deleted = changes(spark, a.path, startingSeq=since).where("op = 'delete'").select("id")
    query = (
        deleted.writeStream.format("siltstone")
        .option("uri", str(b.path))
        .option("table", "copy")
        .option("op", "delete")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert b["copy"].count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "t"}, "option 'uri' is missing"),
        ({"uri": "A", "table": "t", "startingSeq": "soon"}, "'earliest', 'latest' or a seq"),
        ({"uri": "A", "table": "t", "startingSeq": "1", "seq": "3"}, "no option 'seq'"),
        ({"uri": "A", "table": "t", "startingSeq": "1", "maxRowsPerTrigger": "0"}, "from 1"),
        ({"uri": "A", "startingSeq": "1"}, "option 'table' is missing"),
        ({"uri": "A", "table": "nope", "startingSeq": "1"}, "no table 'nope'"),
    ],
)
def test_a_bad_source_is_one_clear_sentence(
    stores: Stores, spark: SparkSession, options: dict[str, str], said: str
) -> None:
    reader = spark.readStream.format("siltstone")
    for name, value in options.items():
        reader = reader.option(name, str(stores[0].path) if value == "A" else value)
    with pytest.raises(PySparkException, match=said):
        reader.load()


def test_a_stream_that_does_not_say_where_it_starts_is_refused(
    stores: Stores, spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.readStream.format("siltstone").options(uri=str(stores[0].path), table="t").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(PySparkException, match="option 'startingSeq' is missing: 'earliest', 'lat"):
        query.start().awaitTermination()
