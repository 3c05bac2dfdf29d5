"""A Python process of a catalog that kills its driver, the JVM and itself, at a step of a batch.

The steps are those of `stream_driver`. Or it dies alone, once, at the step of `DEATH`, which has a
file by which the next process knows that it did. Spark starts this instead of a Python:

    killing_daemon.py -m siltstone.spark.daemon SOCKET JSON
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from siltstone.spark.daemon import __main__ as daemon
from siltstone.spark.daemon import writing
from siltstone.spark.writes.writer import SinkWritten
from tests.spark.stream_driver import kill_at

DEATH = "TESTED_DEATH"


def die_at(step: str, batch: int) -> None:
    """End this process, if it is time."""
    wanted, number, mark = os.environ.get(DEATH, "never:0:").split(":")
    if step == wanted and batch == int(number) and not Path(mark).exists():
        Path(mark).touch()
        os._exit(1)


class KillingSinkJob(writing.SinkJob):
    def write(self, iterator: Iterator[pa.RecordBatch], task: int) -> SinkWritten:
        kill_at("planned", 0)
        return super().write(iterator, task)

    def commit(self, written: Sequence[SinkWritten], batch: int) -> None:
        kill_at("staged", batch)
        die_at("staged", batch)
        super().commit(written, batch)
        kill_at("committed", batch)
        die_at("committed", batch)


def executable(folder: Path) -> Path:
    """Return a program that Spark may take for a Python."""
    found = folder / "python"
    start = "import sys; from tests.spark import killing_daemon as it; it.main(sys.argv[3:])"
    found.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{start}' \"$@\"\n")
    found.chmod(0o755)
    return found


def main(arguments: Sequence[str]) -> int:
    """Be that process."""
    writing.SinkJob = KillingSinkJob
    return daemon.main(arguments)
