"""Hidden rows: what a scan pays to leave them out, `python -m bench.hidden`.

    python -m bench.hidden [--rounds N] [SOURCE ...]

A table of 1 M rows (an int64 key, an int64, a text) is loaded and merged, and then some of its rows
are written again, so that those of base are hidden. A snapshot is scanned, which no image serves:
one int64 column, and all three. The page shows milliseconds of CPU of the thread that scans, the
median of the rounds; `bench.sources` says what a SOURCE is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

import siltstone as st
from bench import sources

ROWS = 1_000_000
HIDDEN = (0, 100, 10_000, 100_000, 500_000)
SCANS = 9
COLUMNS: dict[str, list[str] | None] = {"one column": ["v"], "three": None}


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
    sources.main("bench.hidden", __doc__, measured, rounds=3)
