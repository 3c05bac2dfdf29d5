"""Beside: scans of a narrow column beside a writer, `python -m bench.beside`.

A table of 1 M rows is loaded and merged. One thread scans one int64 column and sums it, another
one commits: transactions of one row that is read and updated, or batches of 1,000 rows. Each is
measured alone, and both beside each other, in turns of one run; the shares are of the rates alone
in the same turn. CPU is that of the thread that scans.

The scans alone read a table that was just merged ("first"), and again after the writer ended
("last"). Only in the first turn no row of base is hidden, so that Lance alone answers the first.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import siltstone as st

BATCH_ROWS = 1_000
Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Rate:
    """What one thread did: calls a second, and the CPU of one in milliseconds."""

    per_s: float
    cpu_ms: float


def run(seconds: float, call: Call, *, is_over: threading.Event | None = None) -> Rate:
    """Call again and again, for some seconds or until it is over."""
    count, cpu, start = 0, time.thread_time(), time.perf_counter()
    while time.perf_counter() - start < seconds and not (is_over and is_over.is_set()):
        call()
        count += 1
    took, cpu = time.perf_counter() - start, time.thread_time() - cpu
    return Rate(count / took, 1e3 * cpu / max(1, count))


def both(seconds: float, scan: Call, write: Call) -> tuple[Rate, Rate]:
    """Run both at once; return the rate of each."""
    is_over, found = threading.Event(), list[Rate]()
    writer = threading.Thread(target=lambda: found.append(run(seconds * 2, write, is_over=is_over)))
    writer.start()
    scans = run(seconds, scan)
    is_over.set()
    writer.join()
    return scans, found[0]


def scans_of(table: st.Table) -> Call:
    """Return a scan of one column that sums it."""

    def scan() -> int:
        return sum(pc.sum(batch.column(0)).as_py() for batch in table.scan(columns=["v"]))

    return scan


def rows_of(db: st.Store, rows: int) -> Call:
    """Return a transaction that reads a row and updates it."""
    rng = random.Random(1)

    def write() -> None:
        with db.transaction() as tx:
            key = rng.randrange(rows)
            row = tx["t"].get(key)
            assert row is not None
            tx["t"].update(key, v=row["v"] + 1)

    return write


def batches_of(table: st.Table, rows: int) -> Call:
    """Return an upsert of a batch; 64 of them are made beforehand."""
    rng = random.Random(1)
    made = [
        pa.table(
            {
                "id": rng.sample(range(rows), BATCH_ROWS),
                "v": [n] * BATCH_ROWS,
                "s": ["x"] * BATCH_ROWS,
            }
        )
        for n in range(64)
    ]

    def write() -> None:
        table.upsert(rng.choice(made))

    return write


def main() -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.beside", description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    rows = int(asked.rows)
    with tempfile.TemporaryDirectory(prefix="siltstone-beside-") as folder:
        db = st.connect(Path(folder) / "db")
        table = db.create_table("t", {"id": "int64", "v": "int64", "s": "string"}, primary_key="id")
        table.upsert(pa.table({"id": range(rows), "v": range(rows), "s": ["x" * 20] * rows}))
        scan = scans_of(table)
        for name, write in (
            ("transactions of one row", rows_of(db, rows)),
            (f"batches of {BATCH_ROWS} rows", batches_of(table, rows)),
        ):
            turns = [_turn(db, asked.seconds, scan, write) for _ in range(asked.turns)]
            _report(name, turns)
        db.close()
    return 0


def _turn(db: st.Store, seconds: float, scan: Call, write: Call) -> tuple[Rate, ...]:
    db.checkpoint()
    db.merge()
    first = run(seconds / 2, scan)
    alone = run(seconds / 2, write)
    scans, writes = both(seconds, scan, write)
    return first, alone, scans, writes, run(seconds / 2, scan)


def _report(name: str, turns: list[tuple[Rate, ...]]) -> None:
    print(f"beside {name}, medians of {len(turns)} turns [lowest, highest]:")
    for what, place in (("scan alone, first", 0), ("scan alone, last", 4), ("scan beside", 2)):
        rates = [turn[place] for turn in turns]
        print(
            f"  {what:18} {_spread([r.per_s for r in rates])} /s,"
            f" CPU {_spread([r.cpu_ms for r in rates])} ms"
        )
    for what, place in (("write alone", 1), ("write beside", 3)):
        print(f"  {what:18} {_spread([turn[place].per_s for turn in turns])} /s")
    print(f"  scans kept         {_spread([t[2].per_s / t[0].per_s for t in turns])} of the first")
    print(f"  scans kept         {_spread([t[2].per_s / t[4].per_s for t in turns])} of the last")
    print(f"  writes kept        {_spread([t[3].per_s / t[1].per_s for t in turns])}", flush=True)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


if __name__ == "__main__":
    sys.exit(main())
