"""W1: one-row upserts, each its own synced commit, by 1, 8 and 64 threads, on a 1 M row table."""

from __future__ import annotations

from collections.abc import Iterator

from bench import data
from bench.measure import Operation, run_for
from bench.peer import Peer
from bench.workload import Metrics, Place

_BASE_ROWS = 1_000_000


class Upserts:
    name = "W1"
    title = "one-row upserts, tx/s"

    def prepare(self, peer: Place) -> None:
        peer.store.load(data.base(peer.sizes.rows(_BASE_ROWS)))

    def measure(self, peer: Place, turn: int) -> Metrics:
        found: Metrics = {}
        for threads in (1, 8, 64):
            seeds = range(1 + turn * 1000 + threads, 1 + turn * 1000 + 2 * threads)
            streams = [data.rows(peer.sizes.rows(_BASE_ROWS), seed) for seed in seeds]
            clients = [_client(peer.store, stream) for stream in streams]
            sample = run_for(peer.sizes.seconds, clients)
            found[f"{threads} threads"] = sample.rate
            found[f"{threads} threads p50 ms"] = sample.percentile_ms(0.5)
            found[f"{threads} threads p99 ms"] = sample.percentile_ms(0.99)
        return found


def _client(store: Peer, stream: Iterator[data.Row]) -> Operation:
    def operation() -> int:
        store.upsert_one(next(stream))
        return 0

    return operation
