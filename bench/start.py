"""Start: how long commands take from their start to their end, `python -m bench.start`.

Each round runs `import lance` and all commands once, in processes of their own, so that what else
the machine does is the same for all. The medians of the rounds are shown: the seconds of a clock,
the seconds of a core, which say more where the machine has other things to do, and how both differ
from `import lance` where pandas is not installed (Lance and Arrow import it where it is). One row
is a part of a process: to import siltstone, open a store and read a row, Lance being there. Python
compiles each module once, in a round that does not count, as it does where packages are installed.
The store has one small table; the server of the last commands is this process.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import siltstone as st

PANDAS = "import lance, pandas installed"
ALONE = "import lance, no pandas"
LIGHT = {"--help": ["--help"], "--version": ["--version"], "token": ["token", "read"]}
HEAVY = {
    "tables": ["tables"],
    "get": ["get", "t", "1"],
    "scan": ["scan", "t"],
    "log": ["log"],
    "upsert": ["upsert", "t", "rows.ndjson"],
}
REMOTE = {"tables over http": ["tables"], "get over http": ["get", "t", "1"]}
OPEN = "open and a get, Lance imported"
WHOLE = """
import sys, time
clock, core = time.perf_counter(), time.process_time()
import siltstone
with siltstone.connect(sys.argv[2], background=False) as db:
    db[sys.argv[1]].get(1)
    print(time.perf_counter() - clock, time.process_time() - core)
"""
"""What a child does that measures itself, with the name of a table and the path of its store."""
OPENING = f"import lance{WHOLE}"
NO_PANDAS = 'raise ModuleNotFoundError("no pandas", name="pandas")\n'


Taken = tuple[float, float]
"""Seconds of the clock, and of cores."""


def taken_by(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Taken:
    """Return how long a process takes; of `WHOLE` and `OPENING` what it says itself."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
    if any(code in command for code in (WHOLE, OPENING)):
        clock, core = map(float, done.stdout.split())
        return clock, core
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(folder: Path, rounds: int) -> dict[str, list[Taken]]:
    """Return how long each command takes, once for each round."""
    (folder / "rows.ndjson").write_text('{"id": 1}\n')
    (folder / "without").mkdir()
    (folder / "without" / "pandas.py").write_text(NO_PANDAS)
    shell = [sys.executable, "-m", "siltstone"]
    given = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    given.pop("PYTHONDONTWRITEBYTECODE", None)
    alone = {**given, "PYTHONPATH": str(folder / "without")}
    for name in ("shop", "served"):
        with st.connect(folder / name, background=False) as db:
            db.create_table("t", {"id": "int64"}, primary_key="id").upsert({"id": 1})
    with st.connect(folder / "served", background=False) as db, closing(db.serve(port=0)) as server:
        lance = [sys.executable, "-c", "import lance"]
        runs = {PANDAS: (lance, given), ALONE: (lance, alone)}
        runs[OPEN] = [sys.executable, "-c", OPENING, "t", "shop"], given
        for name, words in {**LIGHT, **HEAVY}.items():
            runs[name] = [*shell, *words], given | {"SILTSTONE_URI": str(folder / "shop")}
        for name, words in REMOTE.items():
            runs[name] = [*shell, *words], given | {"SILTSTONE_URI": server.url}
        found: dict[str, list[Taken]] = {name: [] for name in runs}
        for number in range(rounds + 1):
            for name, (command, environment) in runs.items():
                taken = taken_by(command, folder, environment)
                if number:
                    found[name].append(taken)
        return found


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often each command runs")
    rounds: int = parser.parse_args().rounds
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), rounds)
    print(f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores")
    lance = _medians(found[ALONE])
    for name, times in found.items():
        median, beside = _medians(times), ""
        if name not in {PANDAS, ALONE, OPEN, *LIGHT}:
            beside = f"  {median[0] - lance[0]:+6.2f}  {median[1] - lance[1]:+6.2f}"
        print(f"{name:36}{median[0]:6.2f}  {median[1]:6.2f}{beside}")


def _medians(times: Sequence[Taken]) -> Taken:
    clock, core = zip(*times, strict=True)
    return statistics.median(clock), statistics.median(core)


if __name__ == "__main__":
    main()
