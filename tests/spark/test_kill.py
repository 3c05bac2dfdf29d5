"""A driver that is killed leaves all rows or none; run again with its token, all of them once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from tests.spark import batch_driver
from tests.spark.stores import SCHEMA

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("way", "point", "left"),
    [
        ("write", "staging", 0),
        ("transaction", "staged", 0),
        ("write", "committed", batch_driver.ROWS),
    ],
)
def test_rows_are_there_once_wherever_the_driver_was_killed(
    spark: SparkSession, tmp_path: Path, way: str, point: str, left: int
) -> None:
    path = tmp_path / "store"
    with st.connect(path, background=False) as db:
        db.create_table("t", SCHEMA, primary_key="id")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.batch_driver", str(path), way, point],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with st.connect(path, read_only=True) as db:
        assert db["t"].count() == left
    for _ in range(2):
        batch_driver.apply(spark, path, way)
        with st.connect(path, background=False) as db:
            assert db["t"].count() == batch_driver.ROWS
            assert [e.rows for e in db.log() if e.rows] == [batch_driver.ROWS]
    with st.connect(path, background=False) as db:
        db["t"].upsert({"id": 0, "name": "later"})
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert db.verify(deep=True).is_sound
        assert db["t"].count() == batch_driver.ROWS
