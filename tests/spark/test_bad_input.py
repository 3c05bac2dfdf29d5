"""What is wrong is said in one sentence, first of all, beside Spark's words for the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark.context import workers
from siltstone.spark.context.options import ReadOptions
from siltstone.spark.reads.reader import BatchReader, describe
from siltstone.spark.streams.changes import CommitTimes, RangeTaskReader
from siltstone.spark.streams.feed import ChangeTaskReader


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A store with a table of five rows; nobody owns it."""
    with st.connect(tmp_path / "store", background=False, retention="0s") as db:
        db.create_table("t", {"id": "int64", "v": "string"}, "id")
        db["t"].upsert([{"id": n, "v": "old"} for n in range(5)])
        db.checkpoint()
    yield tmp_path / "store"
    with st.connect(tmp_path / "store", background=False) as db:
        assert db.verify(deep=True).is_sound


def load(spark: SparkSession, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("siltstone").options(**given).load()


def save(rows: DataFrame, **options: object) -> None:
    given = {name: str(value) for name, value in options.items()}
    rows.write.format("siltstone").mode("append").options(**given).save()


def first_words(work: Callable[[], object]) -> str:
    """Return the error up to its sentence: Spark has a line of its own above those of tasks."""
    with pytest.raises(Exception, match=r"\S") as caught:
        work()
    return " ".join(str(caught.value).splitlines()[:2])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"uri": "/nowhere"}, "RequestError: /nowhere is not a store: there is no such directory"),
        ({"table": "x"}, "TableNotFoundError: there is no table 'x'; the tables are t"),
        ({"seq": 99}, "SnapshotExpiredError: cannot read at seq 99: the store keeps seq"),
        ({"sequ": 1}, "RequestError: a read has no option 'sequ'; did you mean 'seq'?"),
        ({"seq": "one"}, "RequestError: option 'seq' must be a whole number; got 'one'"),
        ({"versionAsOf": 1, "tag": "a"}, "give only one of the options 'tag' and 'versionAsOf'"),
    ],
)
def test_a_bad_read_is_said_on_the_first_words(
    spark: SparkSession, path: Path, options: dict[str, object], said: str
) -> None:
    given = {"uri": path, "table": "t", **options}
    assert said in first_words(lambda: load(spark, **given))


def test_a_bad_write_is_said_first_and_writes_nothing(spark: SparkSession, path: Path) -> None:
    rows = spark.range(3)
    bad = [
        (rows.selectExpr("id", "1.5d v"), {}, "column 'v' of 't' has type string, the rows have d"),
        (rows.selectExpr("id", "'x' v"), {"op": "upset"}, "option 'op' must be one of upsert, "),
        (rows.selectExpr("id % 2 id", "'x' v"), {}, "DuplicateKeyError: t["),
        (rows.selectExpr("id", "'x' v"), {"op": "insert"}, "DuplicateKeyError: t[0] exists alr"),
    ]
    for given, options, said in bad:
        words = first_words(lambda g=given, o=options: save(g, uri=path, table="t", **o))
        assert said in words
        assert "Traceback" not in words
    with st.connect(path, read_only=True) as db:
        assert {row["v"] for row in db["t"].to_arrow().to_pylist()} == {"old"}
        assert db["t"].count() == 5


def test_a_stream_that_says_no_start_is_told_so_first(spark: SparkSession, path: Path) -> None:
    def follow() -> None:
        stream = spark.readStream.format("siltstone").load(str(path / "t")).writeStream
        place = stream.option("checkpointLocation", str(path.with_name("checkpoint")))
        query = place.format("memory").queryName("none").trigger(availableNow=True).start()
        query.awaitTermination()

    words = first_words(follow)
    assert "RequestError: option 'startingSeq' is missing: 'earliest', 'latest' or a seq" in words
    assert "Traceback" not in words


def test_a_server_that_has_stopped_is_named(spark: SparkSession, path: Path) -> None:
    with st.connect(path, background=False) as db:
        url = db.serve(port=0).url
    for work in (
        lambda: load(spark, uri=url, table="t"),
        lambda: save(spark.range(3).selectExpr("id", "'x' v"), uri=url, table="t"),
    ):
        assert f"UnavailableError: the owner of {url} does not answer" in first_words(work)


def test_work_of_another_version_is_refused_before_it_is_read(path: Path) -> None:
    options = ReadOptions(str(path), "t")
    schema, seq = describe(options)
    read = BatchReader(options.pinned(seq), schema)
    assert read.partitions()
    with st.connect(path, read_only=True) as db:
        times = CommitTimes.of(db, 0, seq)
    for each in (read, ChangeTaskReader(schema), RangeTaskReader(schema, times)):
        opened, (made_by, payload) = each.__reduce__()
        assert made_by == workers.version()
        assert opened(made_by, payload)
        said = rf"has siltstone {made_by}, the one that sent it work has 0\.0\.1; .* same version"
        with pytest.raises(st.UnavailableError, match=said):
            opened("0.0.1", b"what only that version can read")
