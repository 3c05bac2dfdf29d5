"""End processes that never call `close()`, in every way that the tests know, under load.

    python -m proof.exits --exits 200 [--at-once 3]

Each loads a store whose background is busy, ends, and is expected to end with the status of its
program, and with all rows that it acknowledged. More processes run at once than there are cores.
It ends with 1 if one of them does not.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import siltstone as st
from tests.test_exits import ENDS, HOOK, LOAD, ended


def exit_once(end: str) -> str | None:
    """Run one process to its end; return what was wrong."""
    work, status, rows = ENDS[end]
    with tempfile.TemporaryDirectory(prefix="siltstone-exits-") as folder:
        done = ended(HOOK + LOAD + work, Path(folder) / "s")
        if done.returncode != status:
            return f"{end}: status {done.returncode}, not {status}: {done.stderr[-500:]}"
        with st.connect(Path(folder) / "s", read_only=True) as db:
            found = db["t"].count()
        return None if found == rows else f"{end}: {found} rows, {rows} were acknowledged"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m proof.exits")
    parser.add_argument("--exits", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=(os.cpu_count() or 1) + 1)
    given = parser.parse_args(arguments)
    ends = list(itertools.islice(itertools.cycle(ENDS), given.exits))
    begun = time.monotonic()
    with ThreadPoolExecutor(given.at_once) as pool:
        wrong = []
        for number, line in enumerate(pool.map(exit_once, ends), 1):
            if line is not None:
                wrong.append(line)
                print(line, flush=True)
            if number % 20 == 0:
                print(f"{number} exits, {len(wrong)} wrong", flush=True)
    counts = ", ".join(f"{count} x {end}" for end, count in Counter(ends).items())
    print(f"{len(ends)} exits ({counts}): {len(wrong)} wrong, {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
