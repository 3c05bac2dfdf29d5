"""Starving: upserts of uniform keys into a large table, for as long as it is told; no writer fails.

    python -m bench.starving [--rows 10000000] [--batch 20000] [--seconds 240] [--dir DIR]

Every merge rewrites most of the table, so writers wait for merges again and again. It prints how
long they waited at most, and ends with 1 if one was refused.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone as st

_LOAD_ROWS = 1_000_000


def main() -> int:
    """Run it; return 1 if a writer was refused."""
    parser = argparse.ArgumentParser("python -m bench.starving")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--dir", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="siltstone-starving-", dir=given.dir))
    try:
        with st.connect(folder / "s") as db:
            return _starve(db, given.rows, given.batch, given.seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _starve(db: st.Store, rows: int, batch: int, seconds: float) -> int:
    table = db.create_table("t", {"id": "int64", "v": "float64"}, primary_key="id")
    for start in range(0, rows, _LOAD_ROWS):
        ids = np.arange(start, min(start + _LOAD_ROWS, rows))
        table.upsert(pa.table({"id": pa.array(ids), "v": pa.array(ids * 0.5)}))
    db.checkpoint()
    db.merge()
    random, waits, begin = np.random.default_rng(1), [0.0], time.monotonic()
    written, refused = 0, ""
    while not refused and time.monotonic() - begin < seconds:
        ids = np.unique(random.integers(0, rows, batch))
        began = time.monotonic()
        try:
            table.upsert(pa.table({"id": pa.array(ids), "v": pa.array(random.random(len(ids)))}))
        except st.BusyError as error:
            refused = str(error)
        waits.append(time.monotonic() - began)
        written += len(ids)
    took = time.monotonic() - begin
    print(
        f"{written} rows in {took:.0f} s, {written / took:.0f} a second; the longest upsert took"
        f" {max(waits):.1f} s, {sum(wait > 1 for wait in waits)} took more than one;"
        f" {refused or 'no writer was refused'}"
    )
    print(db.status())
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
