"""What Spark's processes do with the URL of a mirror, without a Spark; see test_spark_session."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

import siltstone as st
from siltstone.errors import RequestError
from siltstone.spark.catalog.settings import settings_of
from siltstone.spark.context import stores
from siltstone.spark.context.application import APPLICATION, store_of
from siltstone.spark.context.kept_stores import close_idle, kept
from siltstone.spark.context.options import FeedOptions, ReadOptions, SinkOptions, WriteOptions
from siltstone.spark.daemon import tables
from siltstone.spark.daemon.messages import PlanScan, TakePin
from siltstone.spark.daemon.pins import Pins
from siltstone.spark.daemon.roots import Roots
from siltstone.spark.daemon.serving import _require_store  # pyright: ignore[reportPrivateUsage]
from siltstone.spark.reads.reader import BatchReader, describe
from siltstone.spark.streams import feed
from siltstone.spark.writes.maintenance import index, merge, optimize
from siltstone.spark.writes.writer import BatchWriter, Sink
from tests.maintenance.mirrors import content, go_on, lived
from tests.reach.conftest import Mirrored, mirror
from tests.support.bucket_servers import AZURE_KEY, SECRET

NO_SPARK: Any = None


@pytest.fixture(autouse=True)
def closes_stores() -> Iterator[None]:
    yield
    close_idle(0)


def read(reader: Any, partitions: Any) -> list[dict[str, object]]:
    """Return the rows of partitions, as an executor reads them: all that it gets is pickled."""
    sent = pickle.dumps((reader, [InputPartition(each.value) for each in partitions]))
    assert SECRET.encode() not in sent
    assert AZURE_KEY.encode() not in sent
    there, found = pickle.loads(sent)
    rows = [row for each in found for batch in there.read(each) for row in batch.to_pylist()]
    return sorted(rows, key=repr)


def test_the_format_reads_at_a_url(shop: Mirrored) -> None:
    for given, seq in (({}, shop.seq), ({"seq": str(shop.changed)}, shop.changed)):
        options = ReadOptions.parse({"path": f"{shop.url}/keyed", **given})
        assert (options.uri, options.table) == (shop.url, "keyed")
        schema, found = describe(options)
        assert found == seq
        reader = BatchReader(options.pinned(found), schema)
        assert read(reader, reader.partitions()) == shop.at[seq]["keyed"]


WORKER = """
import pickle, sys
reader, partitions = pickle.load(sys.stdin.buffer)
rows = [list(row.values()) for each in partitions for batch in reader.read(each)
        for row in batch.to_pylist()]
pickle.dump(rows, sys.stdout.buffer)
"""


def read_elsewhere(home: Path, reader: Any, partitions: list[InputPartition]) -> list[list[object]]:
    """Return the rows that a process with a home of its own reads."""
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WORKER],
        input=pickle.dumps((reader, partitions)),
        env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def test_two_workers_with_the_bucket_alone_read_at_a_seq_while_the_owner_writes(
    url: str, tmp_path: Path
) -> None:
    with lived(tmp_path / "s") as db:
        mirror(db.path, url)
        seq, expected = db.seq, sorted(list(row.values()) for row in content(db)["keyed"])
        options = ReadOptions.parse({"path": f"{url}/keyed", "maxRowsPerTask": "20"})
        schema, found = describe(options)
        assert found == seq
        reader = BatchReader(options.pinned(seq), schema)
        partitions = list(reader.partitions())
        rows = list[list[object]]()
        for number in range(2):  # each half beside another state of the store and of the bucket
            go_on(db, number)
            db.merge()
            mirror(db.path, url)
            half = [InputPartition(each.value) for each in partitions[number::2]]
            rows += read_elsewhere(tmp_path / f"home{number}", reader, half)
        assert sorted(rows) == expected
        assert db["keyed"].count() == len(expected) + 2


def test_the_catalog_plans_and_an_executor_reads_what_it_pinned(shop: Mirrored) -> None:
    pins = Pins(Roots())
    held = pins.take(TakePin(token="1", uri=shop.url, version=str(shop.changed)))
    assert held.snapshot.seq == shop.changed
    asked = PlanScan(
        token="1", table="keyed", columns=["id", "v"], filters=["v = 'v9'"], parallelism=2,
        limit=None, task_rows=None, application="",
    )  # fmt: skip
    _, packed = tables.cut(held.snapshot, asked)
    rows = list[dict[str, object]]()
    for each in packed:
        _, tasks = pickle.loads(each)
        for task in tasks:
            _require_store(task.root, held.store)
            rows += [row for batch in task.read() for row in batch.to_pylist()]
    assert rows == [{"id": 9, "v": "v9"}]
    with pytest.raises(RequestError, match="the query reads store other"):
        _require_store(shop.url, "other")
    pins.release(["1"])


def test_a_stream_reads_at_a_url_and_sets_no_tag(shop: Mirrored) -> None:
    given = {"uri": shop.url, "table": "keyed", "startingSeq": "earliest"}
    options = FeedOptions.parse(given)
    clock = itertools.count(0, 1000)  # seconds: a tag would be set by each commit
    reader = feed.FeedReader(options, feed.describe(options), clock_s=lambda: float(next(clock)))
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadAllAvailable())
    rows = read(reader, reader.partitions(start, first))
    reader.commit(first)
    newest = reader.latestOffset(first, ReadAllAvailable())
    changed = read(reader, reader.partitions(first, newest))
    reader.commit(newest)
    assert reader.latestOffset(newest, ReadAllAvailable()) == newest
    reader.stop()
    with st.connect(shop.url, read_only=True) as far:
        (seq,) = {int(str(row["_seq"])) for row in rows}
        with far.snapshot(seq=seq) as then:
            assert len(rows) == then["keyed"].count() > 0
        known = far.changes(seq)["keyed"].read_all().to_pylist()
        assert changed == sorted(known, key=repr)
        assert list(far.tags()) == ["first"]
    again = feed.FeedReader(options, feed.describe(options))  # of a driver that was killed
    assert read(again, again.partitions(first, newest)) == changed
    again.stop()


def test_a_store_is_kept_open_by_its_url(shop: Mirrored) -> None:
    with kept(shop.url) as one, kept(stores.path_of(f"{shop.url}/")) as other:
        assert one is other
        assert store_of(one.path, one.store_id) == f"{one.store_id} {shop.url}"
        assert stores.path_of(one) == shop.url
    assert settings_of({"shop": shop.url})["spark.sql.catalog.shop.uri"] == shop.url


def test_roots_are_urls_too() -> None:
    roots = Roots(["s3://lake/shop", "/data"])
    assert roots.path_of("s3://lake/shop/eu") == "s3://lake/shop/eu"
    assert roots.path_of("s3://lake/shop/") == "s3://lake/shop"
    for wrong in ("s3://lake/shopping", "s3://lake", "gs://lake/shop", "s3://data/x"):
        with pytest.raises(RequestError, match="roots allows only"):
            roots.path_of(wrong)
    with pytest.raises(RequestError, match="may not name"):
        Roots(["/data"]).path_of("s3://lake/shop")


@pytest.mark.parametrize("work", ["append", "overwrite", "sink", "owner", "planner", "merge"])
def test_what_writes_is_refused_before_a_row_is_staged(
    shop: Mirrored, work: str, tmp_path: Path
) -> None:
    place = {"uri": shop.url, "table": "keyed"}
    schema, _ = describe(ReadOptions.parse(place))
    works: dict[str, Any] = {
        "append": lambda: BatchWriter.plan(WriteOptions.parse(place), schema, is_overwrite=False),
        "overwrite": lambda: BatchWriter.plan(WriteOptions.parse(place), schema, is_overwrite=True),
        "sink": lambda: Sink(
            SinkOptions.parse(place),
            schema,
            is_overwrite=False,
            first_commit=0,
            environment={APPLICATION: str(tmp_path)},
        ).planned(),
        "owner": lambda: stores.owner(shop.url),
        "planner": lambda: stores.planner(shop.url),
        "merge": lambda: [each(NO_SPARK, shop.url) for each in (merge, optimize, index)],
    }
    with pytest.raises(RequestError, match="open the path with mirror=URL"):
        works[work]()
