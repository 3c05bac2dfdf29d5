"""A standalone cluster of Spark in processes of its own: a master, and workers of one core each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path

import pyspark

from siltstone.spark.context.java import java_home
from tests.spark.stream_driver import with_tests
from tests.support.machines import Machine

ROOT = Path(__file__).parent.parent.parent
DEPLOY = "org.apache.spark.deploy"
PROGRAMS = Path(pyspark.__file__).parent / "bin"


def environment() -> dict[str, str]:
    """Return that of all its processes, and of drivers."""
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
def running(
    log: Path, ready: str, *command: str, machine: Machine | None = None, home: Path | None = None
) -> Iterator[str]:
    """Run a part of the cluster for as long as the block lasts; give the line that says ready.

    `home`: of the process and those that it starts, with the user's caches.
    """
    own = {} if home is None else {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    program = str(PROGRAMS / "spark-class")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, *command] if machine is None else machine.command(program, *command),
            env=environment() | own if machine is None else machine.environment(**environment()),
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


@contextmanager
def cluster(
    folder: Path, hosts: Sequence[str] = ("127.0.0.1",) * 2, homes: Sequence[Path | None] = ()
) -> Iterator[str]:
    """Run a cluster with a worker at each of `hosts`; give the URL of its master.

    `homes`: where each of them has its home, if not at this user's.
    """
    where = ("--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = (f"{DEPLOY}.master.Master", "--host", "127.0.0.1", *where)
        started = running(folder / "master", "Starting Spark master at", *master)
        found = re.search(r"spark://\S+", stack.enter_context(started))
        assert found
        for n, (host, home) in enumerate(zip_longest(hosts, homes)):
            size = ("--cores", "1", "--memory", "600m", "--work-dir", str(folder / f"work{n}"))
            worker = (f"{DEPLOY}.worker.Worker", "--host", host, *where, *size, found[0])
            ready = "Successfully registered with master"
            stack.enter_context(running(folder / f"worker{n}", ready, *worker, home=home))
        yield found[0]
