"""A driver that is killed in a MERGE leaves all of it or nothing; run again with its token, once.

It is killed from outside, while its commit stands at a point: with all of its processes, or its JVM
alone, whose Python process then finds that its work is over.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import siltstone as st
from siltstone.spark import register
from tests.spark import merge_driver
from tests.spark.clusters import ROOT
from tests.spark.daemons import parent_of, socket_of
from tests.spark.stream_driver import with_tests

BEFORE = {n: n for n in range(30)}
AFTER = {n: n + 1 if n < 30 else 100 for n in range(10, merge_driver.ROWS)}
POINTS = {"commit.before_frame": BEFORE, "commit.after_frame": AFTER, "attach.before_plan": BEFORE}
WAIT_S = 300


@contextmanager
def _paused(store: Path, point: str) -> Iterator[int]:
    """Run a driver up to a point of its commit; yield the process that stands there."""
    meeting = str(store.parent / "meeting")
    orders = {"SILTSTONE_FAILPOINTS": f"{point}=pause", "SILTSTONE_FAILPOINTS_SOCKET": meeting}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(WAIT_S)
        listening.bind(meeting)
        listening.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.merge_driver", str(store)],
            cwd=ROOT,
            env={**os.environ, **orders, "PYTHONPATH": with_tests()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            held, _ = listening.accept()
            with held:
                where, pid = held.recv(100).split()
                assert where.decode() == point
                yield int(pid)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def _ending(pid: int) -> Iterator[None]:
    """Wait at the end of the block for a process to end."""
    descriptor = os.pidfd_open(pid)
    try:
        yield
        assert select.select([descriptor], [], [], WAIT_S)[0], "it goes on"
    finally:
        os.close(descriptor)


def _rows(path: Path) -> dict[int, int]:
    with st.connect(path, read_only=True) as db:
        return {row["id"]: row["v"] for row in db["o"].to_arrow().to_pylist()}


@pytest.mark.parametrize("killed", ["all", "jvm"])
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_killed_in_a_merge_leaves_all_of_it_or_nothing_and_a_token_applies_it_once(
    spark: SparkSession, tmp_path: Path, point: str, killed: str
) -> None:
    path = tmp_path / "shop"
    with st.connect(path, background=False) as db:
        rows = [{"id": n, "v": v} for n, v in BEFORE.items()]
        db.create_table("o", {"id": "int64", "v": "int64"}, "id").upsert(rows)
    with _paused(path, point) as daemon:
        folder = socket_of(daemon).parent
        with _ending(daemon):
            if killed == "all":
                os.killpg(os.getpgid(daemon), signal.SIGKILL)
            else:
                os.kill(parent_of(daemon), signal.SIGKILL)
    assert folder.exists() == (killed == "all"), "who is not killed takes its socket away"
    shutil.rmtree(folder, ignore_errors=True)
    assert _rows(path) == POINTS[point]
    name = f"killed_{tmp_path.name}"
    register(spark, stores={name: path})
    for _ in range(2):
        merge_driver.merge(spark, name)
        assert _rows(path) == AFTER
    with st.connect(path, background=False) as db:
        assert [entry.token for entry in db.log() if entry.token] == [("a", 1)]
        db.checkpoint()
        db.vacuum(dry_run=False, grace_s=0)
        assert db.vacuum(grace_s=0).files == ()
        assert db.verify(deep=True).is_sound
        assert db["o"].count() == len(AFTER)
