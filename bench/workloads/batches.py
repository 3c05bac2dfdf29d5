"""W2: batches of 1,000 and 100,000 rows (Arrow in, one commit each) into a 1 M row table.

Half of a batch's keys exist. The time to make a batch is left out.
"""

from __future__ import annotations

import time

from bench import data
from bench.workload import Metrics, Place

_BASE_ROWS = 1_000_000


class Batches:
    name = "W2"
    title = "batch upserts, rows/s"

    def prepare(self, peer: Place) -> None:
        peer.store.load(data.base(peer.sizes.rows(_BASE_ROWS)))

    def measure(self, peer: Place, turn: int) -> Metrics:
        return {
            f"{label} rows": _rate(peer, peer.sizes.rows(size, 100), 1 + turn * 10 + order)
            for order, (label, size) in enumerate((("1,000", 1_000), ("100,000", 100_000)))
        }


def _rate(peer: Place, size: int, seed: int) -> float:
    stream = data.batches(peer.sizes.rows(_BASE_ROWS), size, seed)
    end = time.perf_counter() + peer.sizes.seconds
    written, busy = 0, 0.0
    while not written or time.perf_counter() < end:
        rows = next(stream)
        begin = time.perf_counter()
        peer.store.upsert_batch(rows)
        busy += time.perf_counter() - begin
        written += rows.num_rows
    return written / busy
