"""What a process keeps of freed memory: `python -m bench.memory`, without and with `tune_malloc`.

    python -m bench.memory --rows 1e6       a store of 32 MiB of memory: scans, then upserts
    python -m bench.memory --factor 20      20 times its memory are upserted beside the merges of
                                            a child, then it is scanned; after a warm-up

Each is a process of its own over a copy of the same store. Printed: how resident memory grew, at
its peak and at the end, and the seconds of a core; with `--factor` the peaks as shares of the
memory, that of the scan without two of its batches. It needs Linux.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone as st
from bench.fold.rows import BATCH_ROWS, SCHEMA, apart, peak_bytes, rows

MEMORY_BYTES = 32 << 20
SCANS = WARM_UPS = 3


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def make(root: Path, count: int) -> None:
    """Make a store of so many rows in base."""
    with st.connect(root, background=False) as db:
        db.create_table("t", SCHEMA, primary_key="id").upsert(rows(np.arange(count), 1))
        db.checkpoint()
        db.merge()


def used(root: Path, count: int, tune_malloc: bool) -> None:
    """Scan, then upsert; print what it took."""
    with st.connect(
        root, background=False, memory_bytes_max=MEMORY_BYTES, tune_malloc=tune_malloc
    ) as db:
        table = db["t"]
        table.get(1)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, began = resident_bytes(), time.process_time()

        def told(label: str) -> None:
            grown = peak_bytes("self") - before, resident_bytes() - before
            seconds = time.process_time() - began
            print(
                f"tune_malloc={tune_malloc!s:5} {label}: grown by {grown[0] / 1e6:.0f} MB at most,"
                f" {grown[1] / 1e6:.0f} MB at the end; {seconds:.1f} s of a core",
                flush=True,
            )

        for _ in range(SCANS):
            for _ in table.scan():
                pass
        told("scans  ")
        for turn, first in enumerate(range(0, 4 * count // 5, BATCH_ROWS)):
            table.upsert(rows(np.arange(first, first + BATCH_ROWS), turn))
        db.checkpoint()
        told("upserts")


def written(root: Path, count: int, tune_malloc: bool, factor: float) -> None:
    """Upsert some times the memory, then scan; print what each grew by."""
    with st.connect(root, memory_bytes_max=MEMORY_BYTES, tune_malloc=tune_malloc) as db:
        table, random, wanted = db["t"], np.random.default_rng(1), factor * MEMORY_BYTES

        def batch() -> pa.Table:
            return rows(random.choice(count, BATCH_ROWS, replace=False), 1)

        for _ in range(WARM_UPS):
            table.upsert(batch())
            table.get(1)
            db.checkpoint()
            db.merge()
            largest = max(found.nbytes for found in table.scan())
        Path("/proc/self/clear_refs").write_text("5")
        before, began = resident_bytes(), time.process_time()
        while wanted > 0:
            given = batch()
            wanted -= given.nbytes
            table.upsert(given)
        writing = peak_bytes("self") - before
        for found in table.scan():
            largest = max(largest, found.nbytes)
        scanning = peak_bytes("self") - before
        seconds = time.process_time() - began
        print(
            f"tune_malloc={tune_malloc!s:5} {before / 1e6:.0f} MB warm; grown by"
            f" {writing / MEMORY_BYTES:.2f} of the memory while {factor:g} x were written, with a"
            f" scan by {(scanning - 2 * largest) / MEMORY_BYTES:.2f} and two batches of"
            f" {largest / 1e6:.1f} MB; {seconds:.1f} s of a core",
            flush=True,
        )


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser("python -m bench.memory", description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--factor", type=float, default=0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="memory-"))
    try:
        apart(make, folder / "made", int(given.rows))
        for tune_malloc in (False, True, False, True):
            shutil.copytree(folder / "made", folder / "db")
            work = (written, (given.factor,)) if given.factor else (used, ())
            apart(work[0], folder / "db", int(given.rows), tune_malloc, *work[1])
            shutil.rmtree(folder / "db")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
