"""Ingest: uniform upserts at full speed beside their merges; no writer may be refused.

    python -m bench.ingest --rows 1e7 --minutes 10 [--batch 20000] [--dir DIR] [--trace]

It loads rows of 100 bytes, opens the store again with default options, and upserts batches of
uniform keys from one thread. It prints rows a second, merges, how long commits took and how writers
were held back, refused commits (BusyError), the bytes of new files by kind per byte of user data
(the log's are what the processes wrote beyond these), and peak memory; with `--trace` also a line
a second. Nothing is vacuumed, so it needs several times the space of what it upserts. It ends with
1 if a commit was refused.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

import siltstone as st
from bench.fold.rows import apart, loaded, peak_bytes, rows, written, written_by_process

_POOL = 32
"""So many batches of values are made before: making them takes longer than upserting them."""


@dataclass(slots=True)
class Upserts:
    """What one thread upserted; `took` has the seconds of each commit."""

    rows: int = 0
    nbytes: int = 0
    refused: int = 0
    took: list[float] = field(default_factory=list[float])
    seconds: float = 0.0

    def run(self, table: st.Table, source: Iterator[pa.Table], seconds: float) -> None:
        """Upsert at full speed."""
        began = at = time.monotonic()
        while at - began < seconds:
            new = next(source)
            at = time.monotonic()
            try:
                table.upsert(new)
            except st.BusyError as error:
                print(error)
                self.refused += 1
            else:
                self.rows, self.nbytes = self.rows + len(new), self.nbytes + new.nbytes
            self.took.append(time.monotonic() - at)
        self.seconds = time.monotonic() - began


@dataclass(slots=True)
class Watch:
    """What another thread sees in the status, once a second."""

    merged: set[int] = field(default_factory=set[int])
    sealed: int = 0
    unmerged: int = 0
    memory: int = 0
    child: int = 0

    def look(self, db: st.Store, done: Upserts, is_over: threading.Event, *, trace: bool) -> None:
        """Look until `is_over`."""
        began, before = time.monotonic(), 0
        while not is_over.wait(1):
            status, now = db.status(), done.rows
            table = status.tables[0]
            self.merged.add(table.merged_seq)
            self.sealed = max(self.sealed, status.sealed_generations)
            self.unmerged = max(self.unmerged, table.unmerged_rows)
            self.memory = max(self.memory, status.memory.total)
            self.child = max(self.child, *map(peak_bytes, _children()), 0)
            if trace:
                _trace(time.monotonic() - began, now - before, status)
            before = now


def _trace(at: float, upserted: int, status: st.Status) -> None:
    memory = status.memory
    sizes = ("active", "sealed", "resident", "history_indexes", "base_indexes")
    shown = ", ".join(f"{name} {getattr(memory, name) / 1e6:.0f}" for name in sizes)
    print(
        f"{at:6.1f} s {upserted:9,} rows; {status.tables[0].unmerged_rows:10,} unmerged; MB:"
        f" {shown}; {[job.kind for job in status.jobs]} {getattr(status, 'backpressure', '')}",
        flush=True,
    )


def batches(count: int, batch: int) -> Iterator[pa.Table]:
    """Yield batches of uniform keys."""
    random, turn = np.random.default_rng(7), 0
    pool = [rows(np.arange(batch), each) for each in range(_POOL)]
    while True:
        keys = np.unique(random.integers(0, count, batch))
        yield pool[turn % _POOL].slice(0, len(keys)).set_column(0, "id", pa.array(keys))
        turn += 1


def load(root: Path, count: int) -> None:
    """Make the store."""
    with st.connect(root, background=False) as db:
        loaded(db, count)


def ingest(root: Path, count: int, seconds: float, batch: int, *, trace: bool) -> bool:
    """Measure, print, and return whether a commit was refused."""
    before, wrote = written(root), written_by_process()
    done, watch, is_over = Upserts(), Watch(), threading.Event()
    source = batches(count, batch)
    next(source)
    with st.connect(root) as db:
        looking = threading.Thread(
            target=watch.look, args=[db, done, is_over], kwargs={"trace": trace}
        )
        looking.start()
        done.run(db["t"], source, seconds)
        is_over.set()
        looking.join()
        held_back = getattr(db.status(), "backpressure", "not told")
    more = written(root) - before
    log = written_by_process() - wrote - sum(more.values())
    _show(done, watch, more, log)
    print(f"writers: {held_back}")
    return bool(done.refused)


def _show(done: Upserts, watch: Watch, more: Counter[str], log: int) -> None:
    speed, user = done.rows / done.seconds, done.nbytes
    print(
        f"{done.rows:,} rows in {done.seconds:.0f} s: {speed:,.0f} rows/s,"
        f" {user / done.seconds / 1e6:.1f} MB/s; {len(watch.merged) - 1} merges;"
        f" at most {watch.unmerged:,} rows not merged, {watch.sealed} generations sealed"
    )
    median, most, longest = np.quantile(done.took, [0.5, 0.99, 1])
    print(
        f"commits: median {1000 * median:.0f} ms, 99 % {most:.2f} s, longest {longest:.2f} s;"
        f" {done.refused} BusyErrors"
    )
    parts = {name: round(size / user, 3) for name, size in more.most_common()}
    print(
        f"written per byte of user data: {sum(more.values()) / user:.2f}, and by the log"
        f" {log / user:.2f}; {parts}"
    )
    print(
        f"memory: {watch.memory / 1e6:,.0f} MB as the store counts,"
        f" {peak_bytes('self') / 1e6:,.0f} MB of the process,"
        f" {watch.child / 1e6:,.0f} MB of the largest child"
    )


def _children() -> list[str]:
    threads = Path("/proc/self/task").glob("*/children")
    return [pid for each in threads for pid in each.read_text().split()]


def main() -> int:
    """Run it; return 1 if a commit was refused."""
    parser = argparse.ArgumentParser("python -m bench.ingest", description=__doc__)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--trace", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ingest-", dir=given.dir))
    try:
        began = time.monotonic()
        # In a process of its own: what a load leaves in memory is not what upserts take.
        apart(load, folder / "db", int(given.rows))
        print(f"loaded {given.rows:,.0f} rows in {time.monotonic() - began:.0f} s", flush=True)
        is_refused = ingest(
            folder / "db", int(given.rows), 60 * given.minutes, given.batch, trace=given.trace
        )
    finally:
        shutil.rmtree(folder)
    return int(is_refused)


if __name__ == "__main__":
    sys.exit(main())
