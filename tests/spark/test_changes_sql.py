"""SQL reads a range of the changes of a table, each change of the range once."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import register
from tests.spark.daemons import daemons, siblings

_numbers = itertools.count()
SCHEMA = {"id": "int64", "v": "string"}
MARKS = ["_change_type", "_commit_version", "_commit_timestamp"]


class Changed:
    """A store as a catalog, whose table `t` has changed with each seq from `first` to `last`."""

    def __init__(self, spark: SparkSession, db: st.Store) -> None:
        self.spark, self.db, self.name = spark, db, f"ch{next(_numbers)}"
        register(spark, stores={self.name: db.path})
        self.first = db.seq + 1
        for n in range(3):
            db["t"].upsert([{"id": n, "v": f"v{n}"}, {"id": 7, "v": str(n)}])
        db["t"].delete([1])
        db.tag("before")
        db["t"].upsert({"id": 1, "v": "again"})
        self.last = db.seq

    def sql(self, changes: str, columns: str = "*", table: str = "t") -> DataFrame:
        return self.spark.sql(f"SELECT {columns} FROM {self.name}.{table} CHANGES {changes}")

    def between(self, changes: str) -> list[tuple]:
        return rows(self.sql(changes))

    def expected(self, since: int, until: int) -> list[tuple]:
        """Return the changes (since, until]."""
        kinds = {"upsert": "update_postimage", "delete": "delete"}
        feed = self.db.changes(since, until, ["t"])["t"].read_all().to_pylist()
        return in_order([(r["_seq"], kinds[r["_op"]], r["id"], r["v"]) for r in feed])

    def refuses(self, changes: str, said: str, table: str = "t") -> None:
        with pytest.raises(Exception, match=said):
            self.sql(changes, table=table).collect()


def rows(frame: DataFrame) -> list[tuple]:
    picked = frame.select("_commit_version", "_change_type", "id", "v").collect()
    return in_order([tuple(row) for row in picked])


def in_order(found: list[tuple]) -> list[tuple]:
    return sorted(found, key=repr)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Changed]:
    with st.connect(tmp_path / "s", background=False, segment_bytes=65_536) as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db.create_table("plain", SCHEMA)
        db.serve_local()
        yield Changed(spark, db)


def test_each_bound_of_a_range_is_a_version_that_is_in_it_or_is_not(shop: Changed) -> None:
    first, last = shop.first, shop.last
    for start, end in itertools.combinations_with_replacement(range(first, last + 1), 2):
        found = shop.between(f"FROM VERSION {start} TO VERSION {end}")
        assert found == shop.expected(start - 1, end), (start, end)
    a, b = first + 1, first + 3
    assert shop.between(f"FROM VERSION {a} EXCLUSIVE TO VERSION {b}") == shop.expected(a, b)
    assert shop.between(f"FROM VERSION {a} TO VERSION {b} EXCLUSIVE") == shop.expected(a - 1, b - 1)
    assert shop.between(f"FROM VERSION 0 TO VERSION {last}") == shop.expected(0, last)
    assert shop.between(f"FROM VERSION {a} INCLUSIVE") == shop.expected(a - 1, last)


def test_a_range_without_a_commit_is_empty(shop: Changed) -> None:
    at, last = shop.first + 1, shop.last
    for bounds in ("{} EXCLUSIVE TO VERSION {}", "{} TO VERSION {} EXCLUSIVE"):
        assert shop.between("FROM VERSION " + bounds.format(at, at)) == []
    assert shop.between(f"FROM VERSION {at} EXCLUSIVE TO VERSION {at} EXCLUSIVE") == []
    assert shop.between(f"FROM VERSION {last + 1}") == []  # for who polls: not yet
    assert shop.sql(f"FROM VERSION {last + 1}").count() == 0


def test_a_version_may_be_a_tag_as_in_version_as_of(shop: Changed) -> None:
    tagged = shop.last - 1
    with shop.db.snapshot(tag="before") as snapshot:
        tagged = snapshot.seq
    found = shop.between("FROM VERSION 'before' EXCLUSIVE")
    assert found == shop.expected(tagged, shop.last)
    shop.refuses("FROM VERSION 'nope'", "no tag 'nope'")


def test_a_bound_may_be_a_time(shop: Changed) -> None:
    at = {entry.seq: entry.time.isoformat() for entry in shop.db.log(20)}
    a, b = shop.first, shop.first + 2
    for before, upto, since, until in (
        ("", "", a - 1, b),
        ("EXCLUSIVE", "", a, b),
        ("", "EXCLUSIVE", a - 1, b - 1),
    ):
        span = f"FROM TIMESTAMP '{at[a]}' {before} TO TIMESTAMP '{at[b]}' {upto}"
        assert shop.between(span) == shop.expected(since, until), span
    assert shop.between(f"FROM TIMESTAMP '{at[b]}'") == shop.expected(b - 1, shop.last)
    assert shop.between("FROM TIMESTAMP '1999-01-01'") == shop.expected(0, shop.last)
    shop.refuses(f"FROM TIMESTAMP '{at[b]}' TO TIMESTAMP '{at[a]}'", "end before they begin")


def test_the_columns_are_those_of_the_table_and_of_the_commits(shop: Changed) -> None:
    found = shop.sql("FROM VERSION 0")
    assert found.columns == ["id", "v", *MARKS]
    times = {entry.seq: entry.time for entry in shop.db.log(20)}
    shown = shop.sql("FROM VERSION 0", "_commit_version, _commit_timestamp").distinct().collect()
    assert {seq: time.astimezone(dt.UTC) for seq, time in shown} == {
        seq: times[seq] for seq, _ in shown
    }
    assert shop.sql("FROM VERSION 0").count() == len(shop.expected(0, shop.last))
    grouped = shop.spark.sql(
        f"SELECT _change_type, count(*) FROM {shop.name}.t CHANGES FROM VERSION 0 GROUP BY 1"
    )
    assert dict(map(tuple, grouped.collect())) == {"update_postimage": 7, "delete": 1}


def test_a_frame_of_changes_ends_where_it_was_made(shop: Changed) -> None:
    frame = shop.sql(f"FROM VERSION {shop.first}")
    before = rows(frame)
    shop.db["t"].upsert({"id": 50, "v": "later"})
    assert rows(frame) == before
    assert rows(shop.sql(f"FROM VERSION {shop.first}")) == shop.expected(0, shop.db.seq)
    joined = shop.spark.sql(
        f"SELECT max(_commit_version), count(t.id) FROM {shop.name}.t CHANGES FROM VERSION 1 c"
        f" JOIN {shop.name}.t USING (id)"
    )
    assert joined.collect()[0][0] == shop.db.seq, "one seq in a statement"


def test_frames_name_a_range_by_options(shop: Changed) -> None:
    reader = shop.spark.read.option("startingVersion", shop.first + 1)
    found = reader.option("endingVersion", shop.last).changes(f"{shop.name}.t")
    assert rows(found) == shop.expected(shop.first, shop.last)
    with pytest.raises(Exception, match="a batch read of changes needs a start"):
        shop.spark.read.changes(f"{shop.name}.t").collect()
    with pytest.raises(Exception, match="a read of changes has no option 'seq'"):
        reader.option("seq", 1).changes(f"{shop.name}.t").collect()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ("FROM VERSION 1 TO VERSION 99", "changes until version 99"),
        ("FROM VERSION 99", "changes since version 99"),
        ("FROM VERSION 4 TO VERSION 3", "the changes of 't' end before they begin"),
        ("FROM TIMESTAMP '2999-01-01'", "cannot read at 2998-12-31T23:59:59.999999.*in the future"),
        ("FROM VERSION 1 WITH (deduplicationMode = 'netChanges')", "no deduplicationMode 'netCh"),
        ("FROM VERSION 1 WITH (computeUpdates = 'true')", "no computeUpdates: they have a row"),
        ("FROM VERSION 1 WITH (filter = 'id > 1')", "a read of changes has no option 'filter'"),
    ],
)
def test_a_range_that_cannot_be_read_is_refused_by_one_sentence(
    shop: Changed, changes: str, said: str
) -> None:
    shop.refuses(changes, said)


def test_a_table_without_changes_is_refused(shop: Changed) -> None:
    shop.refuses("FROM VERSION 1", "'plain' is a plain table: it has versions", table="plain")
    shop.refuses("FROM VERSION 1", "TABLE_OR_VIEW_NOT_FOUND", table="nope")


def test_duplicates_are_none_whatever_spark_is_to_leave_out(shop: Changed) -> None:
    for mode in ("none", "dropCarryovers"):
        found = shop.between(f"FROM VERSION 1 WITH (deduplicationMode = '{mode}')")
        assert found == shop.expected(0, shop.last)


def test_a_stream_of_a_range_is_refused(shop: Changed) -> None:
    frame = shop.spark.readStream.option("startingVersion", 1).changes(f"{shop.name}.t")
    query = frame.writeStream.format("noop").option("checkpointLocation", f"{shop.db.path}-c")
    with pytest.raises(Exception, match=r"a stream reads t\.changes, by spark\.readStream\.table"):
        query.start().awaitTermination()


def test_a_range_that_is_not_kept_any_more_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with st.connect(tmp_path / "old", background=False, retention="0s") as db:
        db.create_table("t", SCHEMA, primary_key="id")
        db.serve_local()
        shop = Changed(spark, db)
        db.untag("before")
        frame = shop.sql(f"FROM VERSION {shop.first} TO VERSION {shop.first + 1}")
        for _ in range(2):
            db["t"].upsert({"id": 9, "v": "x"})
            db.checkpoint()
            db.merge()
            db.vacuum(dry_run=False, grace_s=0)
        with pytest.raises(Exception, match="the store keeps seq"):
            frame.collect()
        shop.refuses(f"FROM VERSION {shop.first + 1}", "the store keeps seq")


def test_a_range_is_read_after_the_process_died(shop: Changed) -> None:
    frame = shop.sql(f"FROM VERSION {shop.first}")
    for each in daemons() or siblings():
        os.kill(each, signal.SIGKILL)
    assert rows(frame) == shop.expected(0, shop.last)
