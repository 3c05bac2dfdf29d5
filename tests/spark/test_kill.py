"""A driver that is killed leaves all rows or none; run again with its token, all of them once.

Each is a JVM of its own: `SILTSTONE_CRASH=all` runs every point, CI those where most is at stake.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from tests.crash.moments import IS_LONG
from tests.spark import batch_driver
from tests.spark.stores import SCHEMA

ROWS = batch_driver.ROWS
POINTS = [
    ("write", "committed", ROWS),
    ("transaction", "staging", 0),
]
SAFER = [
    ("write", "planned", 0),
    ("write", "staged", 0),
    ("transaction", "committed", ROWS),
]


@pytest.mark.parametrize(("way", "point", "left"), POINTS + SAFER if IS_LONG else POINTS)
def test_rows_are_there_once_wherever_the_driver_was_killed(
    spark: SparkSession, tmp_path: Path, way: str, point: str, left: int
) -> None:
    path = tmp_path / "store"
    with st.connect(path, background=False) as db:
        db.create_table("t", SCHEMA, primary_key="id")
    done = batch_driver.run_killed(path, way, point)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with st.connect(path, read_only=True) as db:
        assert db["t"].count() == left
    for _ in range(2):
        batch_driver.apply(spark, path, way)
        with st.connect(path, background=False) as db:
            found = db["t"].to_arrow().sort_by("id").to_pylist()
            assert found == [{"id": n, "name": f"row {n}", "v": 0.5} for n in range(ROWS)]
            assert [e.rows for e in db.log() if e.rows] == [ROWS]
    with st.connect(path, background=False) as db:
        db["t"].upsert({"id": 0, "name": "later"}, missing="null")
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert db.vacuum(grace_s=0).files == ()
        assert db.verify(deep=True).is_sound
        assert db["t"].count() == ROWS
