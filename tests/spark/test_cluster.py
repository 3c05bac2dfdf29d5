"""A standalone cluster reads, writes and maintains a store, whatever its executors suffer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import siltstone as st
from tests.spark import cluster_driver
from tests.spark.clusters import ROOT, cluster, environment
from tests.spark.stores import SCHEMA


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with cluster(tmp_path) as found:
        yield found


def test_a_cluster_loses_executors_tasks_and_room_but_no_row(master: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with st.connect(path, background=False) as db:
        db.create_table("t", SCHEMA, primary_key="id")
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_driver", master, str(path)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for step in cluster_driver.STEPS:
        found = pq.read_table(f"{path}.{step}").sort_by("id").to_pylist()
        assert found == cluster_driver.expected(step), step
    logs = [log.read_text() for log in tmp_path.glob("work*/app-*/*/stderr")]
    assert len(logs) >= 3, "two executors, and another for the one that was killed"
    with st.connect(path, background=False) as db:
        assert [entry.rows for entry in db.log() if entry.rows] == [cluster_driver.ROWS] * 3
        with db.snapshot() as snap:
            found = snap["t"].to_arrow().sort_by("id").to_pylist()
        assert found == cluster_driver.expected("merged")
        db["t"].upsert({"id": 0, "name": "later", "v": None})
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert db.vacuum(grace_s=0).files == ()
        assert db.verify(deep=True).is_sound
        assert db["t"].count() == len(found)
