"""Rows: loading, opening, reading and writing a table of 10,000 to 100,000,000 rows.

Each point is a store of its own: loaded, checkpointed and merged, opened again. The page cache is
warm. Rows are made and loaded 10 M at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench import data
from bench.measure import median, run_for, timed
from bench.peers.siltstone import Siltstone
from bench.workload import Metrics

_PIECE = 10_000_000
_REPEATS = 3
_CYCLE = 65_536


class Rows:
    name = "rows"
    title = "rows of a table"
    x = "rows"
    points = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
    x_usual = 10_000_000
    s_each = 3e-6
    drawn = ("load rows/s", "all columns rows/s")

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds

    def measure(self, x: int) -> Metrics:
        path = self._folder / str(x)
        store = Siltstone(path)
        load = 0.0
        for piece in _pieces(x):
            load += timed(lambda piece=piece: store.load(piece))
            del piece
        settle = timed(store.settle)
        store.close()

        def reopen() -> None:
            nonlocal store
            store = Siltstone(path)
            store.get(x // 2)

        found = {"load rows/s": x / load, "settle s": settle, "open ms": 1e3 * timed(reopen)}
        found |= self._used(store, x)
        store.close()
        shutil.rmtree(path)
        return found

    def _used(self, store: Siltstone, x: int) -> Metrics:
        store.scan_sum()
        narrow = median([timed(store.scan_sum) for _ in range(_REPEATS)])
        whole = median([timed(store.scan_all) for _ in range(_REPEATS)])
        keys = _cycle(x)
        stream = data.rows(x, 2)

        def read() -> int:
            store.get(next(keys))
            return 0

        def write() -> int:
            store.upsert_one(next(stream))
            return 0

        run_for(self._seconds / 2, [read])  # a small base comes to memory by being read
        run_for(self._seconds / 4, [write])
        return {
            "sum rows/s": x / narrow,
            "all columns rows/s": x / whole,
            "reads/s": run_for(self._seconds, [read]).rate,
            "commits/s": run_for(self._seconds, [write]).rate,
        }

    def close(self) -> None:
        pass


def _pieces(rows: int) -> Iterator[data.pa.Table]:
    for start in range(0, rows, _PIECE):
        size = min(_PIECE, rows - start)
        ids = start + np.random.default_rng(start).permutation(size).astype(np.int64)
        yield data.accounts(ids, start)


def _cycle(rows: int) -> Iterator[int]:
    keys = np.random.default_rng(3).integers(0, rows, _CYCLE).tolist()
    while True:
        yield from keys
