"""A Python process of a catalog in which something goes wrong, once, where a test says so.

A fault is a file in a folder that all of these processes know, `<step>.<action>`; it befalls the
process that takes the file away.

reading    a task has read some rows          die       this process is killed
staging    a task has got some rows           orphan    the JVM of it is killed
staged     a task's rows are staged, and      fail      an error
           the JVM has not heard of it

Spark starts this instead of a Python:

    faulty_daemon.py -m siltstone.spark.daemon SOCKET JSON
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from siltstone.spark.daemon import __main__ as daemon
from siltstone.spark.daemon import serving, writing

FOLDER = "TESTED_FAULTS"


def _fail() -> None:
    raise RuntimeError("the executor has a fever")


ACTIONS: dict[str, Callable[[], None]] = {
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "orphan": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "fail": _fail,
}


def arm(folder: Path, fault: str) -> Path:
    """Let a fault befall one process; return its file, which is there until it has."""
    found = folder / fault
    found.touch()
    return found


def suffer(step: str) -> None:
    """Do what is to go wrong at a step."""
    for action, act in ACTIONS.items():
        try:
            Path(os.environ[FOLDER], f"{step}.{action}").unlink()
        except FileNotFoundError:
            continue
        act()


def executable(folder: Path) -> Path:
    """Return a program that Spark may take for a Python; faults are files in `folder`."""
    found = folder / "python"
    start = "import sys; from tests.spark import faulty_daemon as it; it.main(sys.argv[3:])"
    found.write_text(f"#!/bin/sh\n{FOLDER}={folder} exec {sys.executable} -c '{start}' \"$@\"\n")
    found.chmod(0o755)
    return found


def _after_some(step: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number == 1:
            suffer(step)
        yield batch


def main(arguments: Sequence[str]) -> int:
    """Be that process."""
    rows_of, with_their_key, staged = serving.rows_of, writing.with_their_key, writing.staged

    def all_staged(*given: Any) -> Any:
        found = staged(*given)
        suffer("staged")
        return found

    serving.rows_of = lambda *given: _after_some("reading", rows_of(*given))
    writing.with_their_key = lambda *given: _after_some("staging", with_their_key(*given))
    writing.staged = all_staged
    return daemon.main(arguments)
