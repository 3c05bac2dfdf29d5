"""Threads: one-row commits and point reads by 1 to 64 threads, on a table of 1 M rows.

Each thread is a client of its own: its commits are synced one by one. Reads are of keys that lie in
the base, by threads that share one interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench import data
from bench.measure import Operation, run_for
from bench.peers.siltstone import Siltstone
from bench.workload import Metrics

_ROWS = 1_000_000
_CYCLE = 4096


class Threads:
    name = "threads"
    title = "clients in threads"
    x = "threads"
    points = (1, 2, 4, 8, 16, 32, 64)
    x_usual = 64
    s_each = 0.0
    drawn = ("commits/s",)

    def __init__(self, folder: Path, seconds: float) -> None:
        self._seconds = seconds
        self._rows = _ROWS if seconds >= 0.5 else _ROWS // 50  # else to load would take longer
        self._store = Siltstone(folder / "store")
        self._store.load(data.base(self._rows))
        self._store.settle()

    def measure(self, x: int) -> Metrics:
        seeds = range(1_000 * x, 1_000 * x + x)
        run_for(self._seconds / 4, [_writer(self._store, data.rows(self._rows, 1))])
        writers = [_writer(self._store, data.rows(self._rows, seed)) for seed in seeds]
        commits = run_for(self._seconds, writers)
        reads = run_for(self._seconds, [_reader(self._store, self._rows, n) for n in seeds])
        return {
            "commits/s": commits.rate,
            "p50 ms": commits.percentile_ms(0.5),
            "p99 ms": commits.percentile_ms(0.99),
            "reads/s": reads.rate,
        }

    def close(self) -> None:
        self._store.close()


def _writer(store: Siltstone, rows: Iterator[data.Row]) -> Operation:
    def write() -> int:
        store.upsert_one(next(rows))
        return 0

    return write


def _reader(store: Siltstone, rows: int, seed: int) -> Operation:
    keys = np.random.default_rng(seed).integers(0, rows, _CYCLE).tolist()
    turn = 0

    def read() -> int:
        nonlocal turn
        turn += 1
        store.get(keys[turn % _CYCLE])
        return 0

    return read
