"""Spark tells a Python source no zone: a time without one is refused where no driver is asked."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StringType, StructField, StructType

import siltstone as st

ZONE = "spark.sql.session.timeZone"
ZONES = ("Asia/Kathmandu", "America/St_Johns")
OF_PROCESS = "Pacific/Chatham"
NAIVE = "2026-11-20 10:00"


class Told(DataSource):
    """Its columns are named as what Spark told the process that plans: settings, variables."""

    @classmethod
    def name(cls) -> str:
        return "told"

    def schema(self) -> StructType:
        session = SparkSession.getActiveSession()
        found = [*settings(sys._getframe()), *os.environ.items(), ("session", str(session))]  # pyright: ignore[reportPrivateUsage]
        return StructType([StructField(f"{name}={text}", StringType()) for name, text in found])


def settings(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """Yield the configuration that the loop of a planner has read from the JVM."""
    while frame is not None and frame.f_code.co_name != "worker_run":
        frame = frame.f_back
    assert frame is not None
    yield "settings", str(vars(frame.f_locals["conf"]))


@pytest.fixture(params=ZONES, ids=["east", "west"])  # processes inherit the name of the test
def abroad(
    spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> SparkSession:
    """A session in a zone that is neither that of Java nor that of the Python processes.

    Spark found our source by its name; nobody registered it, as in a session of Java or SQL alone.
    """
    monkeypatch.setitem(spark.sparkContext.environment, "TZ", OF_PROCESS)
    found = spark.newSession()
    found.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    found.conf.set(ZONE, request.param)
    found.dataSource.register(Told)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with st.connect(tmp_path / "store", background=False) as db:
        db.create_table("t", {"id": "int64"}, "id").insert({"id": 1})
    return tmp_path / "store"


def test_a_planner_is_told_no_zone_of_the_session(abroad: SparkSession) -> None:
    told = abroad.read.format("told").load().schema.names
    assert f"TZ={OF_PROCESS}" in told
    assert "session=None" in told
    zone = abroad.conf.get(ZONE)
    assert zone in ZONES
    assert not [each for each in told if str(zone) in each]


@pytest.mark.parametrize(
    "options",
    [
        {"timestampAsOf": NAIVE},
        {"readChangeFeed": "true", "startingTimestamp": NAIVE},
        {"readChangeFeed": "true", "startingVersion": "1", "endingTimestamp": NAIVE},
    ],
)
def test_a_time_without_a_zone_is_refused_where_no_driver_is_asked(
    abroad: SparkSession, path: Path, options: dict[str, str]
) -> None:
    name = next(name for name in options if name.endswith(("AsOf", "Timestamp")))
    reader = abroad.read.format("siltstone").options(uri=str(path), table="t", **options)
    with pytest.raises(Exception, match=f"option '{name}': the time {NAIVE} has no zone"):
        reader.load()
    stream = {"uri": str(path), "table": "t", "startingTimestamp": NAIVE}
    with pytest.raises(Exception, match=f"option 'startingTimestamp': the time {NAIVE} has no"):
        abroad.readStream.format("siltstone").options(**stream).load()


def test_a_time_with_its_offset_means_the_same_in_every_session(
    abroad: SparkSession, path: Path
) -> None:
    with st.connect(path, background=False) as db:
        at = dt.datetime.now(dt.UTC).isoformat()
        db["t"].insert({"id": 2})
    frame = abroad.read.format("siltstone").options(uri=str(path), table="t", timestampAsOf=at)
    assert [row.id for row in frame.load().collect()] == [1]
