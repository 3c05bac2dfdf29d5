"""A standalone cluster reads, writes and maintains a store, whatever its executors suffer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

import siltstone as st
from siltstone.spark.context.java import java_home
from tests.spark import cluster_driver
from tests.spark.stores import SCHEMA
from tests.spark.stream_driver import with_tests
from tests.support.machines import Machine

ROOT = Path(__file__).parent.parent.parent
DEPLOY = "org.apache.spark.deploy"


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(java_home(os.environ)),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": with_tests(),  # the driver's own functions
        "PYTHONWARNINGS": "ignore",
    }


@contextmanager
def running(log: Path, ready: str, *command: str, machine: Machine | None = None) -> Iterator[str]:
    """Run a part of the cluster for as long as the block lasts; give the line that says ready."""
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, *command] if machine is None else machine.command(program, *command),
            env=environment() if machine is None else machine.environment(**environment()),
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    assert process.stderr is not None
    # What is not read would fill the pipe, and the process would wait.
    drain = threading.Thread(target=process.stderr.read)
    try:
        line = next((each for each in process.stderr if ready in each), "")
        assert line, f"{command} ended with {process.wait()}"
        drain.start()
        yield line
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if drain.ident is not None:
            drain.join()
        process.stderr.close()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        started = running(
            tmp_path / "master", "Starting Spark master at", f"{DEPLOY}.master.Master", *where
        )
        found = re.search(r"spark://\S+", stack.enter_context(started))
        assert found
        for n in range(2):
            size = ("--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"work{n}"))
            worker = (f"{DEPLOY}.worker.Worker", *where, *size, found[0])
            ready = "Successfully registered with master"
            stack.enter_context(running(tmp_path / f"worker{n}", ready, *worker))
        yield found[0]


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
