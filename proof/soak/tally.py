"""Tally: what all processes of a soak did, counted in one file that outlives who is killed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from proof.lines import lines_of


class Tally:
    """Any thread; one line for each thing that was done."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, what: str) -> None:
        """Count one more."""
        os.write(self._file, what.encode() + b"\n")


def counted(path: Path) -> Counter[str]:
    """Return how often each thing was done."""
    return Counter(lines_of(path))
