"""Start: how long commands take from their start to their end, `python -m bench.start`.

Each round runs `import lance` and all commands once, in processes of their own, so that what else
the machine does is the same for all. The medians of the rounds are shown, and for commands that
need a store the difference to `import lance`. The store has one small table; the server of the
last ones is this process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import siltstone as st

LANCE = "import lance"
LIGHT = {"--help": ["--help"], "--version": ["--version"], "token": ["token", "read"]}
HEAVY = {
    "tables": ["tables"],
    "get": ["get", "t", "1"],
    "scan": ["scan", "t"],
    "log": ["log"],
    "upsert": ["upsert", "t", "rows.ndjson"],
}
REMOTE = {"tables over http": ["tables"], "get over http": ["get", "t", "1"]}


def seconds(command: Sequence[str], folder: Path, uri: str) -> float:
    """Return how long a process takes."""
    environment = {**os.environ, "SILTSTONE_URI": uri}
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
    return time.perf_counter() - begun


def measured(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each command, one of each round."""
    (folder / "rows.ndjson").write_text('{"id": 1}\n')
    shell = [sys.executable, "-m", "siltstone"]
    for name in ("shop", "served"):
        with st.connect(folder / name, background=False) as db:
            db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
    with st.connect(folder / "served", background=False) as db, closing(db.serve(port=0)) as server:
        runs = {LANCE: ([sys.executable, "-c", LANCE], "")}
        for name, words in {**LIGHT, **HEAVY}.items():
            runs[name] = [*shell, *words], str(folder / "shop")
        for name, words in REMOTE.items():
            runs[name] = [*shell, *words], server.url
        found: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, (command, uri) in runs.items():
                found[name].append(seconds(command, folder, uri))
    return found


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often each command runs")
    rounds: int = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), rounds)
    lance = statistics.median(found[LANCE])
    for name, times in found.items():
        median = statistics.median(times)
        beside = "" if name in {LANCE, *LIGHT} else f"  {median - lance:+.2f} s beside {LANCE}"
        print(f"{name:20}{median:6.2f} s{beside}")


if __name__ == "__main__":
    main()
