"""The medallion example counts each event once, over kills of its driver and over replays."""

from __future__ import annotations

import datetime as dt
import signal
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import siltstone as st
from examples.pipelines import medallion, taxi_events
from tests.spark import medallion_driver

TRIPS = 3 * taxi_events.TRIPS_PER_FILE
PARTITIONS = "spark.sql.shuffle.partitions"
SHOWN = ("silver_trips", "silver_payments", "silver_vehicles", "gold_counted", "gold_zone_days")


def raw_events(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.parquet"))
    found = [event for path in files for event in pq.read_table(path).to_pylist()]
    assert len({tuple(event.items()) for event in found}) < len(found)  # some came twice
    return [event for event in found if event["fare"] != "n/a"]


def newest_trips(folder: Path) -> dict[int, dict[str, Any]]:
    trips: dict[int, dict[str, Any]] = {}
    for event in raw_events(folder):
        known = trips.get(int(event["trip"]))
        if known is None or known["sent_at"] < event["sent_at"]:
            trips[int(event["trip"])] = event
    return trips


def sums(trips: dict[int, dict[str, Any]]) -> dict[tuple[str, dt.date], tuple[int, Decimal]]:
    found: dict[tuple[str, dt.date], tuple[int, Decimal]] = defaultdict(lambda: (0, Decimal(0)))
    for trip in trips.values():
        if trip["status"] != "void":
            key = (trip["zone"], dt.datetime.fromisoformat(trip["started_at"]).date())
            count, fares = found[key]
            found[key] = (count + 1, fares + Decimal(trip["fare"]))
    return dict(found)


def contents(store: Path) -> dict[str, list[dict[str, Any]]]:
    with st.connect(store, read_only=True) as db, db.snapshot() as now:
        found = {table: now[table].to_arrow() for table in SHOWN}
    return {
        table: rows.sort_by([(key, "ascending") for key in medallion.TABLES[table][0]]).to_pylist()
        for table, rows in found.items()
    }


def commits(store: Path, table: str) -> list[tuple[int, tuple[str, ...], int]]:
    """Return the commits that wrote rows of a table, oldest first."""
    with st.connect(store, read_only=True) as db:
        log = [(entry.seq, tuple(sorted(entry.tables)), entry.rows) for entry in db.log(limit=999)]
    return sorted(entry for entry in log if table in entry[1] and entry[2])


def assert_no_reader_saw_a_trip_without_its_payment(store: Path) -> None:
    with st.connect(store, read_only=True) as db:
        for seq, tables, _ in commits(store, "silver_trips"):
            assert tables == tuple(sorted(medallion.SILVER))
            with db.snapshot(seq=seq) as then:
                trips = then["silver_trips"].to_arrow()
                paid = then["silver_payments"].to_arrow()
                known = then["silver_vehicles"].to_arrow()
            assert set(trips["trip"].to_pylist()) == set(paid["trip"].to_pylist())
            assert set(trips["vehicle"].to_pylist()) <= set(known["vehicle"].to_pylist())


@pytest.fixture
def _settings(spark: SparkSession) -> Iterator[None]:
    """The session of other tests, which the example finds by itself, as they left it."""
    before = spark.conf.get(PARTITIONS)
    yield
    spark.conf.set(PARTITIONS, str(before))


@pytest.mark.usefixtures("_settings")
def test_a_killed_driver_and_a_replay_leave_each_trip_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, raw = tmp_path / "taxi", tmp_path / "taxi-raw"
    arguments = ["--store", str(store), "--rows", str(TRIPS)]
    in_two = [*arguments, "--files-per-batch", "2"]

    # Batch 0 has the rows of before the first change: none. The sums would show a batch that counts
    # twice, and batch 2, of which nothing is committed, one that is lost.
    done = medallion_driver.run_killed("gold batch 1: committed", in_two)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [len(commits(store, table)) for table in ("silver_trips", "gold_zone_days")] == [2, 1]

    assert medallion.main([*in_two, "--check"]) == 0
    assert "gold batch 1: committed" in capsys.readouterr().out  # Spark tried it again
    for table in taxi_events.EXPECTED:
        assert len(commits(store, table)) == 2
    assert_no_reader_saw_a_trip_without_its_payment(store)
    trips, found = newest_trips(raw), contents(store)
    assert {row["trip"]: str(row["fare"]) for row in found["silver_trips"]} == {
        trip: event["fare"] for trip, event in trips.items()
    }
    assert {
        (row["zone"], row["day"]): (row["trips"], row["fares"]) for row in found["gold_zone_days"]
    } == sums(trips)

    again = [*arguments, "--checkpoints", str(tmp_path / "again"), "--files-per-batch", "9"]
    assert medallion.main(again) == 0
    assert "gold batch 1: committed" in capsys.readouterr().out  # it did begin anew
    assert contents(store) == found
    for table in taxi_events.EXPECTED:
        assert len(commits(store, table)) == 2  # none of the replay has rows


def test_the_check_of_the_example_finds_a_row_that_is_missing_wrong_or_too_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, raw = tmp_path / "taxi", tmp_path / "taxi-raw"
    taxi_events.write_files(raw, 1)
    with st.connect(store) as db:
        for name, (key, columns) in medallion.TABLES.items():
            db.create_table(name, columns, primary_key=key)
        rows = [
            {"zone": zone, "day": day, "trips": count, "fares": fares}
            for (zone, day), (count, fares) in sums(newest_trips(raw)).items()
        ]
        db["gold_zone_days"].insert(rows)
    assert taxi_events.differences(store, raw)["gold_zone_days"] == (len(rows), 0)
    with st.connect(store) as db:
        db["gold_zone_days"].delete((rows[0]["zone"], rows[0]["day"]))  # missing: 1
        db["gold_zone_days"].upsert({**rows[1], "trips": 0})  # wrong: one of each, 2
        db["gold_zone_days"].insert({**rows[2], "zone": "Moon"})  # too many: 1
    assert taxi_events.differences(store, raw)["gold_zone_days"] == (len(rows), 4)
    assert medallion.check(store, raw) == 1
    assert "gold_zone_days" in capsys.readouterr().out
