"""W5: scans of 10 M rows: clean, and with 1 % of the keys written again and not merged.

One narrow column (summed) and all columns (to Arrow); the first scan after the writes apart, for
it may have to find what they shadow.
"""

from __future__ import annotations

import numpy as np

from bench import data
from bench.measure import median, timed
from bench.workload import Metrics, Place

_ROWS = 10_000_000
_REPEATS = 3


class Scans:
    name = "W5"
    title = "scans, rows/s"

    def prepare(self, peer: Place) -> None:
        peer.store.load(data.base(peer.sizes.rows(_ROWS)))
        peer.store.settle()
        peer.store.scan_sum()

    def measure(self, peer: Place, turn: int) -> Metrics:
        found = _scan(peer, "clean")
        if peer.name == "lance":  # it has no overlay: the clean scan is what the others are held to
            return found
        rows = peer.sizes.rows(_ROWS)
        keys = np.random.default_rng(turn).choice(rows, rows // 100, replace=False)
        peer.store.upsert_batch(data.accounts(keys.astype(np.int64), turn + 1))
        found["overlaid narrow first"] = rows / timed(peer.store.scan_sum)
        found |= _scan(peer, "overlaid")
        peer.store.settle()
        return found


def _scan(peer: Place, state: str) -> Metrics:
    rows = peer.sizes.rows(_ROWS)
    works = (("narrow", peer.store.scan_sum), ("all columns", peer.store.scan_all))
    return {
        f"{state} {label}": rows / median([timed(work) for _ in range(_REPEATS)])
        for label, work in works
    }
