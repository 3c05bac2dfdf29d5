"""A Python process of a catalog whose memory no JVM can map, as where `/proc` hides it.

Spark starts this instead of a Python:

    unmapped_daemon.py -m siltstone.spark.daemon SOCKET JSON
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from siltstone.spark.daemon import __main__ as daemon
from siltstone.spark.daemon.regions import Region


def executable(folder: Path) -> Path:
    """Return a program that Spark may take for a Python."""
    found = folder / "python"
    start = "import sys; from tests.spark import unmapped_daemon as it; it.main(sys.argv[3:])"
    root = Path(__file__).parents[2]
    path = f'PYTHONPATH="{root}:$PYTHONPATH"'
    found.write_text(f"#!/bin/sh\n{path} exec {sys.executable} -c '{start}' \"$@\"\n")
    found.chmod(0o755)
    return found


def main(arguments: Sequence[str]) -> int:
    """Be that process."""
    place = Region.place
    Region.place = lambda self: {**place(self), "path": "/proc/self/none"}
    return daemon.main(arguments)
