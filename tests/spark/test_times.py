"""A local time of an option goes by the zone that is given with it, as Spark reads it."""

from __future__ import annotations

import datetime as dt
import time
import zoneinfo
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import siltstone as st
from siltstone.spark import snapshot
from siltstone.spark.context.options import ChangeOptions, FeedOptions, ReadOptions

STORE = {"uri": "/shop", "table": "orders"}
SESSION_ZONE = "spark.sql.session.timeZone"
ZONES = ("America/New_York", "Asia/Tokyo")
LOCAL = (
    "2026-11-20",
    "2026-11-20 10:00",
    "2026-11-20T10:00:00.123456",
    "2026-03-08 02:30:00",  # New York puts its clocks forward
    "2026-11-01 01:30:00",  # and back
    "1883-11-18 12:01:00",
)


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def _zone_of_the_process(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[st.Store]:
    with st.connect(tmp_path / "s", background=False) as found:
        found.create_table("t", {"id": "int64"}, primary_key="id")
        found.serve_local()
        yield found


def by_spark(spark: SparkSession, zone: str, text: str) -> int:
    """Return what Spark makes of a local time in a session of a zone, in microseconds."""
    before = spark.conf.get(SESSION_ZONE)
    spark.conf.set(SESSION_ZONE, zone)
    try:
        row = spark.sql(f"select unix_micros(cast('{text}' as timestamp)) us").first()
    finally:
        spark.conf.set(SESSION_ZONE, str(before))
    assert row is not None
    return int(row["us"])


def micros(text: str | None) -> int:
    assert text is not None
    since = dt.datetime.fromisoformat(text) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(microseconds=1)


@pytest.mark.usefixtures("_zone_of_the_process")
@pytest.mark.parametrize("zone", [*ZONES, "+05:30", "-3", "UTC", "GMT+1", "Z", "Lord_Howe"])
def test_a_local_time_is_the_one_that_spark_reads_in_that_zone(
    spark: SparkSession, zone: str
) -> None:
    named = "Australia/Lord_Howe" if zone == "Lord_Howe" else zone
    by_java = "GMT-3" if zone == "-3" else named
    for text in LOCAL:
        right = by_spark(spark, by_java, text)
        given = {**STORE, "timeZone": named}
        for name in ("timestampAsOf", "at"):
            assert micros(ReadOptions.parse({**given, name: text}).at) == right, (zone, text)
        assert micros(FeedOptions.parse({**given, "startingTimestamp": text}).start_at) == right
        span = {**given, "readChangeFeed": "true"}
        found = ChangeOptions.parse({**span, "startingTimestamp": text, "endingTimestamp": text})
        assert (micros(found.start_at), micros(found.end_at)) == (right, right)


def test_a_time_with_an_offset_keeps_it() -> None:
    given = {**STORE, "TIMEZONE": "Asia/Tokyo", "timestampAsOf": "2026-11-20 10:00-05:00"}
    found = ReadOptions.parse(given)
    assert found.at == "2026-11-20 10:00-05:00"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"timestampAsOf": "2026-11-20"}, "no zone: .*or give .* times as option 'timeZone'"),
        ({"timeZone": "Mars/Base"}, "'timeZone' must be a time zone, like .*; got 'Mars/Base'"),
        ({"timeZone": ""}, "'timeZone' must be a time zone"),
        ({"timeZone": "../etc/passwd"}, "'timeZone' must be a time zone"),
        ({"timeZone": "+19:00"}, "'timeZone' must be a time zone"),
        ({"timeZone": "UTC", "timestampAsOf": "soon"}, "a time must be like .*; got 'soon'"),
        ({"timeZone": "+10", "timestampAsOf": "0001-01-01"}, "is outside the years 1 to 9999"),
    ],
)
def test_what_is_no_time_or_zone_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(st.RequestError, match=said):
        ReadOptions.parse({**STORE, **given})


def test_batches_and_changes_of_a_local_time_go_by_the_zone_of_the_session(
    spark: SparkSession, db: st.Store
) -> None:
    db["t"].insert({"id": 1})
    first = next(entry for entry in db.log() if entry.seq == db.seq).time
    db["t"].insert({"id": 2})
    before = spark.conf.get(SESSION_ZONE)
    try:
        for zone in ZONES:
            spark.conf.set(SESSION_ZONE, zone)
            row = spark.sql(f"select cast(timestamp '{first.isoformat()}' as string) as at").first()
            assert row is not None

            def load(at: str = row["at"], zone: str = zone, **names: str) -> DataFrame:
                times = dict.fromkeys(names.values(), at)
                reader = spark.read.format("siltstone").options(**times, timeZone=zone)
                if "as_of" not in names:
                    reader = reader.option("readChangeFeed", "true")
                return reader.load(f"{db.path}/t")

            assert load(as_of="timestampAsOf").count() == 1
            ids = load(start="startingTimestamp").select("id").collect()
            assert sorted(row[0] for row in ids) == [1, 2]
            span = load(start="startingTimestamp", end="endingTimestamp")
            assert [row["id"] for row in span.collect()] == [1]
    finally:
        spark.conf.set(SESSION_ZONE, str(before))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.usefixtures("_zone_of_the_process")
def test_a_snapshot_takes_a_local_time_in_the_zone_of_its_session(
    spark: SparkSession, db: st.Store, zone: str
) -> None:
    db["t"].upsert({"id": 1})
    between = dt.datetime.now(dt.UTC)
    db["t"].upsert({"id": 2})
    local = between.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None)
    before = spark.conf.get(SESSION_ZONE)
    spark.conf.set(SESSION_ZONE, zone)
    try:
        with snapshot(spark, db, at=str(local)) as past:
            assert [row.id for row in past["t"].collect()] == [1]
        with snapshot(spark, db, at=between.isoformat()) as past:
            assert past.seq == db.seq - 1
        with pytest.raises(st.RequestError, match="has no zone"):
            snapshot(spark, db, at=local)
    finally:
        spark.conf.set(SESSION_ZONE, str(before))
