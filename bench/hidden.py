"""Hidden rows: what a scan pays to leave them out, `python -m bench.hidden`.

    python -m bench.hidden [--rounds N] [SOURCE ...]

A table of 1 M rows (an int64 key, an int64, a text) is loaded and merged, and then some of its rows
are written again, so that those of base are hidden. A snapshot is scanned, which no image serves:
one int64 column, and all three. The page shows milliseconds of CPU of the thread that scans, the
median of the rounds, and of how much of them the table is without hidden rows.

Each SOURCE is the `src` of a checkout, measured in a process of its own, in turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

import siltstone as st

ROWS = 1_000_000
HIDDEN = (0, 100, 10_000, 100_000, 500_000)
SCANS = 9
COLUMNS: dict[str, list[str] | None] = {"one column": ["v"], "three": None}
_HERE = Path(__file__).parents[1]


def main() -> None:
    """Measure each source in turns, and print what was found."""
    parser = argparse.ArgumentParser("python -m bench.hidden", description=__doc__)
    parser.add_argument("sources", nargs="*", type=Path, default=[_HERE / "src"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        with tempfile.TemporaryDirectory(prefix="siltstone-hidden-") as folder:
            sys.stdout.write(json.dumps(measured(Path(folder))))
        return
    found: dict[Path, list[dict[str, float]]] = {source: [] for source in given.sources}
    for _, (source, rounds) in itertools.product(range(given.rounds), found.items()):
        rounds.append(_by_child(source))
    for source, rounds in found.items():
        print(source)
        for name in rounds[0]:
            values = [each[name] for each in rounds]
            print(f"  {name:30} {median(values):7.2f}   {min(values):.2f} to {max(values):.2f}")


def _by_child(source: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source.resolve()), str(_HERE)])}
    command = [sys.executable, "-m", "bench.hidden", "--child"]
    done = subprocess.run(command, env=environment, cwd=_HERE, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def rows(keys: np.ndarray) -> pa.Table:
    """Return rows with these keys."""
    texts = [f"row {key} of the table" for key in keys.tolist()]
    return pa.table({"id": keys, "v": keys * 7, "t": texts})


def measured(folder: Path) -> dict[str, float]:
    """Return the milliseconds of each kind of scan; see the module."""
    found: dict[str, float] = {}
    schema = {"id": "int64", "v": "int64", "t": "string"}
    order = np.random.default_rng(1).permutation(ROWS)
    with st.connect(folder / "store", background=False) as db:
        table = db.create_table("t", schema, primary_key="id")
        table.insert(rows(np.arange(ROWS)))
        db.checkpoint()
        db.merge()
        hidden = 0
        for wanted in HIDDEN:
            if wanted > hidden:
                table.upsert(rows(order[hidden:wanted]))
            hidden = wanted
            for name, columns in COLUMNS.items():
                with db.snapshot() as snapshot:
                    scanned = snapshot["t"]
                    cpu_ms = _cpu_ms(lambda s=scanned, c=columns: s.scan(c))
                found[f"{name}, {hidden} hidden"] = cpu_ms
    return found


def _cpu_ms(scan: Callable[[], pa.RecordBatchReader]) -> float:
    """Return the processor time of one scan, all of its batches read."""
    took: list[float] = []
    for _ in range(SCANS):
        begun, count = time.thread_time(), 0
        for batch in scan():
            count += batch.num_rows
        took.append(1e3 * (time.thread_time() - begun))
        assert count == ROWS
    return median(took)


if __name__ == "__main__":
    sys.exit(main())
