"""A Spark Connect server in processes of its own, as an administrator starts one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import grpc
import pyspark

from siltstone.spark.context.java import java_home
from tests.children import with_pandas

START_S_MAX = 300
_SCRIPT = Path(pyspark.__file__).parent / "sbin" / "start-connect-server.sh"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def connect_server(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server whose directory and temporary files are in `folder`; yield its URL.

    `more`: settings that it is started with, besides.
    """
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    port = _free_port()
    settings = {**_SETTINGS, "spark.connect.grpc.binding.port": str(port), **(more or {})}
    flags = [word for each in settings.items() for word in ("--conf", "=".join(each))]
    environment = with_pandas() | {
        "JAVA_HOME": str(java_home(os.environ)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOG_DIR": str(folder / "logs"),
        "SPARK_LOCAL_DIRS": str(temporary),
        "TMPDIR": str(temporary),
    }
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            ["bash", str(_SCRIPT), "--master", "local[2]", *flags],
            cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=START_S_MAX)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
