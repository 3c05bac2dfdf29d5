"""The medallion example in a driver of its own, killed, JVM and all, when it prints a line.

A batch prints its line after its commit, and before Spark hears that the batch is done.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

from examples.pipelines import medallion
from siltstone.spark import session
from tests.spark.stream_driver import SHORT_LIVED, with_tests

_ROOT = Path(__file__).parent.parent.parent


class KillingOutput(io.TextIOBase):
    """Prints, and kills the group of this process once a text with `wanted` is printed."""

    def __init__(self, wanted: str) -> None:
        self._wanted, self._out = wanted, sys.stdout

    def write(self, text: str) -> int:
        self._out.write(text)
        if self._wanted in text:
            self._out.flush()
            os.killpg(0, signal.SIGKILL)
        return len(text)

    def flush(self) -> None:
        self._out.flush()


def run_killed(line: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the example in a process that is killed when it prints `line`; return how it ended."""
    command = [sys.executable, "-c", "from tests.spark import medallion_driver as it; it.main()"]
    return subprocess.run(
        [*command, line, *arguments],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": with_tests(), "PYTHONWARNINGS": "ignore"},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def main() -> None:
    """Be that driver."""
    spark = session(SHORT_LIVED, master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    with contextlib.redirect_stdout(KillingOutput(sys.argv[1])):
        raise SystemExit(medallion.main(sys.argv[2:]))
