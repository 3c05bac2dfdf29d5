"""Sources: what is measured of several source trees, each in a process of its own, in turns.

    python -m bench.<module> [--rounds N] [SOURCE ...]

Each SOURCE is the `src` of a checkout; without one it is that of this checkout. All have the same
neighbours, as they are measured in turns. What is printed is the median of the rounds, the lowest
and the highest.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

_HERE = Path(__file__).parents[1]
Figures = dict[str, float]


def main(module: str, about: str | None, measured: Callable[[Path], Figures], rounds: int) -> None:
    """Measure each source of the command line, and print what was found.

    Args:
        module: The module of `measured`, which runs as a program too.
        about: What `--help` says.
        measured: Measures the siltstone that it can import, in an empty folder.
        rounds: How many there are by default.
    """
    parser = argparse.ArgumentParser(f"python -m {module}", description=about)
    parser.add_argument("sources", nargs="*", type=Path, default=[_HERE / "src"])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        with tempfile.TemporaryDirectory(prefix="siltstone-bench-") as folder:
            sys.stdout.write(json.dumps(measured(Path(folder))))
        return
    found: dict[Path, list[Figures]] = {source: [] for source in given.sources}
    for _, (source, figures) in itertools.product(range(given.rounds), found.items()):
        figures.append(_by_child(module, source))
    for source, figures in found.items():
        print(source)
        for name in figures[0]:
            values = [each[name] for each in figures]
            print(f"  {name:45} {median(values):7.2f}   {min(values):.2f} to {max(values):.2f}")


def _by_child(module: str, source: Path) -> Figures:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source.resolve()), str(_HERE)])}
    command = [sys.executable, "-m", module, "--child"]
    done = subprocess.run(command, env=environment, cwd=_HERE, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)
