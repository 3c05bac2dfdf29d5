"""Sources: what is measured of several source trees, each in a process of its own, in turns."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[2]
Figures = dict[str, float]
Found = dict[Path, dict[str, list[float]]]


def environment(source: Path) -> dict[str, str]:
    """Return that of a process which imports siltstone from `source`, and this bench."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(source.resolve()), str(HERE)])}


def measured(module: str, sources: list[Path], rounds: int) -> Found:
    """Return what `module`, a program that prints its figures as JSON, finds of each source."""
    found: Found = {source: {} for source in sources}
    for _, source in itertools.product(range(rounds), sources):
        command = [sys.executable, "-m", module]
        done = subprocess.run(
            command, env=environment(source), cwd=HERE, check=True, stdout=subprocess.PIPE
        )
        figures: Figures = json.loads(done.stdout)
        for name, value in figures.items():
            found[source].setdefault(name, []).append(value)
    return found


def show(found: Found) -> None:
    """Print of each figure the median, the lowest and the highest."""
    for source, figures in found.items():
        print(source)
        for name, values in figures.items():
            print(f"  {name:45} {median(values):8.2f}   {min(values):.2f} to {max(values):.2f}")
