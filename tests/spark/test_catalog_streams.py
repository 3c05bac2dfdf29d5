"""Streams through a catalog: the changes of a table as a source, and a table as an exact sink."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import siltstone as st
from siltstone.spark import register
from siltstone.spark.context.options import FeedOptions
from siltstone.spark.context.schemas import to_spark
from siltstone.spark.daemon.feeds import StreamRuns
from siltstone.spark.daemon.messages import FeedStep, PlanSink
from siltstone.spark.daemon.writing import SinkJob, plan_sink
from siltstone.spark.streams import feed
from siltstone.spark.streams.feed import RunState
from tests.spark import killing_daemon
from tests.spark.daemons import daemons, siblings
from tests.spark.stream_driver import STEPS, follow_by_catalog, run_killed, stores_of

_numbers = itertools.count()
SOURCE = {"id": "int64", "v": "string"}
LOG = {"seq": "int64", "op": "string", "id": "int64", "v": "string"}


class Followed:
    """Two stores as catalogs: `a`, whose table `t` is followed, and `b`, with what comes of it."""

    def __init__(self, spark: SparkSession, root: Path, a: st.Store, b: st.Store) -> None:
        number = next(_numbers)
        self.spark, self.root, self.a, self.b = spark, root, a, b
        self.source, self.sink = f"fa{number}", f"fb{number}"
        register(spark, stores={self.source: root / "a", self.sink: root / "b"})

    def put(self, step: int) -> None:
        self.a["t"].upsert([{"id": 10 * (step % 3) + n, "v": str(step)} for n in range(10)])

    def changes(self, **options: object) -> DataFrame:
        given = {name: str(value) for name, value in options.items()}
        found = self.spark.readStream.options(**given).table(f"{self.source}.t.changes")
        return found.selectExpr("_seq AS seq", "_op AS op", "id", "v")

    def start(
        self, frame: DataFrame, table: str = "log", mode: str = "append", **more: object
    ) -> StreamingQuery:
        given = {"checkpointLocation": str(self.root / "c"), **more}
        writer = frame.writeStream.outputMode(mode).trigger(availableNow=True)
        writer = writer.options(**{name: str(value) for name, value in given.items()})
        return writer.toTable(f"{self.sink}.{table}")

    def follow(self, frame: DataFrame | None = None, **more: Any) -> StreamingQuery:
        query = self.start(self.changes() if frame is None else frame, **more)
        query.awaitTermination()
        return query

    def logged(self) -> list[tuple]:
        return in_order(self.b["log"].to_arrow().to_pylist())

    def fed(self) -> list[tuple]:
        return in_order(self.a.changes(tables=["t"])["t"].read_all().to_pylist())


def in_order(rows: list[dict]) -> list[tuple]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Followed]:
    with (
        st.connect(tmp_path / "a", background=False, segment_bytes=65_536) as a,
        st.connect(tmp_path / "b", background=False, segment_bytes=65_536) as b,
    ):
        with a.transaction() as tx:
            tx.create_table("t", SOURCE, primary_key="id")
            tx["t"].upsert([{"id": n, "v": "first"} for n in range(10)])
        a.create_table("plain", SOURCE)
        b.create_table("log", LOG)
        a.serve_local()
        b.serve_local()
        yield Followed(spark, tmp_path, a, b)


def collected(shop: Followed, frame: DataFrame, where: str = "m") -> list[tuple]:
    """Run a stream into memory, as far as there is something; return its rows."""
    name = f"rows{next(_numbers)}"
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(shop.root / where))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return in_order([row.asDict() for row in shop.spark.table(name).collect()])


# --- the source


def test_the_stream_of_a_table_begins_with_its_rows_and_goes_on_with_its_changes(
    shop: Followed,
) -> None:
    shop.put(0)
    shop.a["t"].delete([3])
    assert collected(shop, shop.changes()) == shop.fed()
    since = shop.a.seq
    shop.put(1)
    later = [row for row in shop.fed() if row[0] > since]
    assert collected(shop, shop.changes(startingSeq=since), "m2") == later
    assert collected(shop, shop.changes(startingVersion=since + 1), "m3") == later


def test_a_batch_ends_with_a_commit_within_the_limit(shop: Followed) -> None:
    for step in range(3):
        shop.put(step)
    query = shop.follow(shop.changes(maxRowsPerTrigger=10))
    assert shop.logged() == shop.fed()
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert [size for size in sizes if size] == [10] * 4


def test_a_run_of_available_now_ends_where_it_began(shop: Followed) -> None:
    shop.put(0)
    done: list[int] = []

    def late(_batch: DataFrame, number: int) -> None:
        done.append(number)
        shop.put(number)  # which the run does not wait for

    stream = shop.changes(maxRowsPerTrigger=10).writeStream.foreachBatch(late)
    stream = stream.option("checkpointLocation", str(shop.root / "now"))
    stream.trigger(availableNow=True).start().awaitTermination()
    assert done == [0, 1]


def test_a_batch_read_of_a_stream_names_what_reads_changes_instead(shop: Followed) -> None:
    with pytest.raises(Exception, match=r"t\.changes is a stream.*t CHANGES FROM VERSION"):
        shop.spark.read.table(f"{shop.source}.t.changes").collect()
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        shop.spark.sql(f"SELECT * FROM {shop.source}.t.changes VERSION AS OF 1").collect()


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ("t", {}, r"t is no stream: its changes are.*t\.changes"),
        ("plain.changes", {}, "'plain' is a plain table: it has versions, not changes"),
        ("nope.changes", {}, "TABLE_OR_VIEW_NOT_FOUND"),
        ("t.changes", {"startingSeq": "soon"}, "'earliest', 'latest' or a seq"),
        ("t.changes", {"startingSeq": "99"}, "changes since seq 99: the store keeps seq 0 to"),
        ("t.changes", {"seq": "1"}, "a stream of changes has no option 'seq'"),
        ("t.changes", {"uri": "/x"}, "has no option 'uri': the catalog knows it"),
        ("t.changes", {"maxRowsPerTrigger": "0"}, "'maxRowsPerTrigger' must be an integer from 1"),
        ("t.changes", {"readChangeFeed": "true"}, "a stream is a change feed already"),
    ],
)
def test_a_stream_that_cannot_be_read_is_refused_by_one_sentence(
    shop: Followed, table: str, options: dict[str, str], said: str
) -> None:
    def follow() -> None:
        frame = shop.spark.readStream.options(**options).table(f"{shop.source}.{table}")
        query = frame.writeStream.format("noop").option("checkpointLocation", str(shop.root / "n"))
        query.start().awaitTermination()

    with pytest.raises(Exception, match=said):
        follow()


def test_a_column_that_is_dropped_ends_the_run_and_the_next_one_goes_on(shop: Followed) -> None:
    frame = shop.changes(maxRowsPerTrigger=1)
    query = frame.writeStream.option("checkpointLocation", str(shop.root / "c"))
    running = query.trigger(processingTime="0 seconds").toTable(f"{shop.sink}.log")
    try:
        running.processAllAvailable()
        shop.a["t"].add_column("w", "int64")
        shop.a["t"].upsert({"id": 50, "v": "x", "w": 1})
        running.processAllAvailable()  # the run has no such column
        shop.a["t"].drop_column("v")
        shop.a["t"].upsert({"id": 51, "w": 1})
        with pytest.raises(Exception, match="'v'"):
            running.processAllAvailable()
    finally:
        running.stop()
    frame = shop.spark.readStream.table(f"{shop.source}.t.changes")
    assert "w" in frame.columns
    shop.follow(frame.selectExpr("_seq AS seq", "_op AS op", "id", "string(w) AS v"))
    assert {row[2:] for row in shop.logged() if row[2] >= 50} == {(50, "x"), (51, "1")}


# --- the sink


def test_each_change_is_written_once_over_restarts(shop: Followed) -> None:
    for step in range(3):
        shop.put(step)
        shop.follow()
        assert shop.logged() == shop.fed()
    batches = [entry.token for entry in shop.b.log(100) if entry.token]
    assert len({app for app, _ in batches}) == 1
    assert [batch for _, batch in batches] == list(reversed(range(len(batches))))


def test_a_batch_of_a_keyed_table_is_an_upsert(shop: Followed) -> None:
    shop.b.create_table("copy", {"id": "int64", "v": "string"}, primary_key="id")
    shop.put(0)
    shop.put(0)
    frame = shop.spark.readStream.table(f"{shop.source}.t.changes")
    newest = frame.where("_op = 'upsert'").selectExpr("id", "v", "_seq AS version")
    shop.b["copy"].upsert({"id": 3, "v": "older"})
    with pytest.raises(Exception, match=r"copy\[0\]|twice"):
        shop.follow(newest.select("id", "v"), table="copy")
    shop.b["copy"].add_column("version", "int64")
    shop.follow(newest, table="copy", order_by="version", checkpointLocation=shop.root / "c2")
    found = {row["id"]: row["v"] for row in shop.b["copy"].to_arrow().to_pylist()}
    assert found == {row["id"]: row["v"] for row in shop.a["t"].to_arrow().to_pylist()}
    gone = frame.where("_op = 'delete'").select("id")
    shop.a["t"].delete([1, 2])
    shop.follow(gone, table="copy", op="delete", checkpointLocation=shop.root / "c3")
    assert {1, 2}.isdisjoint(shop.b["copy"].to_arrow()["id"].to_pylist())


def test_output_modes_write_as_those_of_the_format(shop: Followed) -> None:
    shop.b.create_table("counts", {"op": "string", "n": "int64"}, primary_key="op")
    counts = shop.changes().groupBy("op").count().selectExpr("op", "count AS n")
    shop.b["counts"].upsert({"op": "mine", "n": 1})
    shop.follow(counts, table="counts", mode="update")
    assert sorted(map(tuple, map(dict.values, shop.b["counts"].to_arrow().to_pylist()))) == [
        ("mine", 1), ("upsert", 10)
    ]  # fmt: skip
    shop.a["t"].delete([1])
    where = shop.root / "c2"
    shop.follow(counts, table="counts", mode="complete", checkpointLocation=where)
    found = sorted(map(tuple, map(dict.values, shop.b["counts"].to_arrow().to_pylist())))
    assert found == [("delete", 1), ("upsert", 10)]
    nothing = counts.where("op = 'none'")
    shop.follow(nothing, table="counts", mode="update", checkpointLocation=shop.root / "c3")
    assert shop.b["counts"].count() == 2
    shop.follow(nothing, table="counts", mode="complete", checkpointLocation=shop.root / "c4")
    assert shop.b["counts"].count() == 0, "the table holds the state of the query"


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ("log", {"op": "upsert"}, "'log' is a plain table|plain table"),
        ("log", {"seq": "1"}, "a streaming write has no option 'seq'"),
        ("log", {"primaryKey": "id"}, "has no option 'primarykey': the catalog knows it"),
        ("log", {"uri": "/x"}, "has no option 'uri': the catalog knows it"),
        ("nope", {}, "has no USING parquet: .* a stream by toTable needs a table that is there"),
    ],
)
def test_a_sink_that_cannot_be_written_is_refused_and_nothing_changes(
    shop: Followed, table: str, options: dict[str, str], said: str
) -> None:
    before = shop.b.seq
    with pytest.raises(Exception, match=said):
        shop.follow(None, table=table, **options)
    assert shop.b.seq == before


def test_a_stream_without_a_checkpoint_is_refused(shop: Followed) -> None:
    before = shop.b.seq
    with pytest.raises(Exception, match="checkpointLocation must be specified"):
        shop.changes().writeStream.toTable(f"{shop.sink}.log")
    assert shop.b.seq == before


def test_a_table_that_is_made_again_between_batches_ends_the_run(shop: Followed) -> None:
    stream = shop.changes().writeStream.option("checkpointLocation", str(shop.root / "c"))
    running = stream.trigger(processingTime="0 seconds").toTable(f"{shop.sink}.log")
    try:
        running.processAllAvailable()
        shop.b.drop_table("log")
        shop.b.create_table("log", LOG)
        shop.put(0)
        with pytest.raises(Exception, match="'log' was dropped and made again since the query"):
            running.processAllAvailable()
    finally:
        running.stop()
    assert shop.logged() == []
    shop.follow()
    assert shop.logged() == [row for row in shop.fed() if row[3] != "first"]


def test_a_running_stream_keeps_nothing_of_the_past_of_the_table_that_it_writes(
    shop: Followed, tmp_path: Path
) -> None:
    with st.connect(tmp_path / "z", background=False, retention="0s") as db:
        db.create_table("copy", SOURCE, primary_key="id")
        db.serve_local()
        register(shop.spark, stores={f"{shop.sink}z": tmp_path / "z"})

        def records() -> list[int]:
            """Return the numbers of the records that are kept, when nothing of the past is."""
            for n in range(2):
                db["copy"].upsert([{"id": key, "v": str(n)} for key in range(100, 120)])
                db.checkpoint()
                db.merge()
            db.vacuum(dry_run=False, grace_s=0)
            found = Path(db.path, "manifest").glob("*.json")
            return sorted(int(each.stem) for each in found)

        begun = records()[-1]
        stream = shop.changes().selectExpr("id", "v").writeStream
        stream = stream.option("checkpointLocation", str(shop.root / "z_c"))
        running = stream.trigger(processingTime="0 seconds").toTable(f"{shop.sink}z.copy")
        try:
            until = time.monotonic() + 120
            while records()[0] <= begun:
                assert time.monotonic() < until, "what there was when it began is kept"
                shop.put(0)
                running.processAllAvailable()
                gc.collect()
                shop.spark._jvm.System.gc()
        finally:
            running.stop()


# --- processes that end


def kill_daemons() -> None:
    for each in daemons() or siblings():
        os.kill(each, signal.SIGKILL)


def test_a_run_goes_on_when_the_process_dies_between_two_steps(shop: Followed) -> None:
    stream = shop.changes(maxRowsPerTrigger=10)
    stream = stream.writeStream.option("checkpointLocation", str(shop.root / "c"))
    running = stream.trigger(processingTime="0 seconds").toTable(f"{shop.sink}.log")
    try:
        for step in range(3):
            running.processAllAvailable()
            assert shop.logged() == shop.fed()
            kill_daemons()
            shop.put(step)
        running.processAllAvailable()
    finally:
        running.stop()
    assert shop.logged() == shop.fed()
    assert len(shop.a.tags()) == 1, "the run has one reader"


def test_a_process_that_dies_in_a_batch_leaves_it_to_the_next_run(shop: Followed) -> None:
    mark = shop.root / "killed"

    def kill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not mark.exists():
                mark.touch()
                for each in siblings():
                    os.kill(each, signal.SIGKILL)
            yield batch

    killed = shop.changes().mapInArrow(kill, "seq bigint, op string, id bigint, v string")
    with pytest.raises(Exception, match="the Python process of siltstone ended"):
        shop.follow(killed)
    assert shop.logged() == []
    shop.follow()
    assert shop.logged() == shop.fed()


@pytest.mark.timeout(1_200)  # drivers, one after the other
def test_a_driver_killed_at_any_step_leaves_each_change_once(shop: Followed) -> None:
    for turn, step in enumerate(STEPS):
        shop.put(turn)
        killed = run_killed(shop.root, step, 0, "main_by_catalog")
        assert killed == -signal.SIGKILL
        assert shop.b["log"].count() == (10 if step == "committed" else 0)
        assert len(shop.a.tags()) == 1
    shop.a["t"].delete([3, 4])
    shop.a.checkpoint()
    register(shop.spark, stores=stores_of(shop.root))
    follow_by_catalog(shop.spark, shop.root)
    assert shop.logged() == shop.fed()
    batches = [entry.token[1] for entry in shop.b.log(100) if entry.token]
    assert batches == list(reversed(range(len(batches))))
    assert len(shop.a.tags()) == 1


@pytest.mark.parametrize("step", ["staged", "committed"])
def test_a_process_that_dies_in_a_commit_is_asked_for_it_again(
    shop: Followed, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    mark = shop.root / "died"
    monkeypatch.setenv(killing_daemon.DEATH, f"{step}:1:{mark}")
    for turn in range(3):
        shop.put(turn)
    assert run_killed(shop.root, "never", 0, "main_by_catalog") == 0
    assert mark.exists()
    assert shop.logged() == shop.fed()


# --- two drivers


class Driver:
    """An application that writes batches of the stream of one checkpoint, as its JVM asks."""

    def __init__(self, shop: Followed, name: str, table: int | None = None) -> None:
        folder = shop.root / f"blockmgr-{name}"
        folder.mkdir(exist_ok=True)
        self.asked = PlanSink(
            uri=str(shop.root / "b"), table="log",
            columns=to_spark(shop.b["log"].schema).json(),
            options={"checkpointLocation": "/c"}, application=str(folder), overwrites=False,
            id=table or shop.b["log"].id, query="the-query",
        )  # fmt: skip

    def planned(self) -> SinkJob:
        job = pickle.loads(pickle.dumps(plan_sink(self.asked)))
        self.asked = msgspec.structs.replace(self.asked, start=job.start)
        return job

    def write(self, number: int, job: SinkJob | None = None) -> None:
        job = job or self.planned()
        rows = pa.RecordBatch.from_pylist(
            [{"seq": number, "op": "upsert", "id": number, "v": "x"}], job.piece.columns
        )
        job.commit([job.write(iter([rows]), 0)], number)


def test_of_two_drivers_of_one_checkpoint_the_one_that_started_last_goes_on(
    shop: Followed,
) -> None:
    older, newer = Driver(shop, "older"), Driver(shop, "newer")
    older.write(0)
    late = older.planned()
    newer.write(0)  # the same batch: nothing happens, but the app is taken
    for number in (1, 2):
        with pytest.raises(st.FencedError, match="stop this process"):
            older.write(number, late)
        newer.write(number)
        with pytest.raises(st.FencedError):
            older.write(number)
    assert [row[0] for row in shop.logged()] == [0, 1, 2]
    again = Driver(shop, "older")  # its application runs the stream again
    again.write(3)
    with pytest.raises(st.FencedError):
        newer.write(4)
    assert [row[0] for row in shop.logged()] == [0, 1, 2, 3]


def test_a_driver_that_never_committed_is_fenced_by_one_that_started_after_it(
    shop: Followed,
) -> None:
    older, newer = Driver(shop, "older"), Driver(shop, "newer")
    late = older.planned()
    newer.write(0)
    with pytest.raises(st.FencedError):
        older.write(0, late)
    newer.write(1)
    with pytest.raises(st.FencedError):
        older.write(2)
    assert [row[0] for row in shop.logged()] == [0, 1]


def test_a_batch_that_is_asked_for_again_is_committed_once(shop: Followed) -> None:
    driver = Driver(shop, "one")
    job = driver.planned()
    driver.write(0, job)
    driver.write(0, job)
    driver.write(0)
    assert [row[0] for row in shop.logged()] == [0]


def test_a_run_that_another_process_goes_on_with_ends_where_it_was_to(shop: Followed) -> None:
    schema = feed.describe(FeedOptions(str(shop.root / "a"), "t"))

    def step(runs: StreamRuns, what: Any, run: RunState, **more: Any) -> tuple[Any, RunState]:
        answer: Any
        answer, _ = runs.take(
            FeedStep(
                token="r", uri=str(shop.root / "a"), table="t", options={},
                columns=schema.json(), step=what, run=run, **more,
            )
        )  # fmt: skip
        return answer, answer.get("run", run)

    first, second = StreamRuns(), StreamRuns()
    initial, run = step(first, "initial", RunState())
    _, run = step(first, "target", run)
    shop.put(0)
    assert step(second, "initial", run)[0]["offset"] == initial["offset"]
    begun, run = step(second, "latest", run, start=initial["offset"])
    ended, run = step(second, "latest", run, start=begun["offset"])
    assert ended["offset"] == begun["offset"], "the run ends before the rows that came later"
    with pytest.raises(st.RequestError, match="an offset of another source"):
        step(second, "latest", run, start="12")
    for runs in (first, second):
        step(runs, "stop", run)
        step(runs, "stop", run)
        assert len(runs._runs) == 0


def test_of_two_drivers_of_one_app_the_older_one_is_fenced(shop: Followed) -> None:
    def running(where: str, **options: object) -> StreamingQuery:
        stream = shop.changes(**options).writeStream.option("app", "shared")
        stream = stream.option("checkpointLocation", str(shop.root / where))
        return stream.trigger(processingTime="0 seconds").toTable(f"{shop.sink}.log")

    older = running("c1", maxRowsPerTrigger=10)
    try:
        for step in range(2):
            older.processAllAvailable()
            shop.put(step)
        older.processAllAvailable()
        newer = running("c2", startingSeq=shop.a.seq)
        try:
            shop.put(3)
            newer.processAllAvailable()
            shop.put(4)
            with pytest.raises(Exception, match=r"'shared' ended"):
                older.processAllAvailable()
        finally:
            newer.stop()
    finally:
        older.stop()
