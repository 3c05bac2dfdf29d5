"""W3: two accounts and two ledger rows in one transaction, by 1 and 8 threads, and on 10 hot ones.

Money is neither made nor lost: the sum of all balances must stay, else an update was lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import data
from bench.measure import Operation, run_for
from bench.peer import Peer
from bench.workload import Metrics, Place

_BASE_ROWS = 1_000_000
_HOT = 10


class Transfers:
    name = "W3"
    title = "transfers (2 accounts + 2 ledger rows), tx/s"

    def prepare(self, peer: Place) -> None:
        peer.store.load(data.base(peer.sizes.rows(_BASE_ROWS)))

    def measure(self, peer: Place, turn: int) -> Metrics:
        everybody = peer.sizes.rows(_BASE_ROWS)
        found: Metrics = {}
        before = peer.store.scan_sum()
        for order, (label, threads, choices) in enumerate(
            (("1 threads", 1, everybody), ("8 threads", 8, everybody), ("8 threads hot", 8, _HOT))
        ):
            first = 1 + turn * 100 + order * 10
            streams = [data.moves(choices, seed) for seed in range(first, first + threads)]
            clients = [_client(peer.store, stream) for stream in streams]
            sample = run_for(peer.sizes.seconds, clients)
            found[label] = sample.rate
            found[f"{label} retries/tx"] = sample.retries / max(1, sample.count)
            found[f"{label} p99 ms"] = sample.percentile_ms(0.99)
        found["drift"] = abs(peer.store.scan_sum() - before)
        return found


def _client(store: Peer, stream: Iterator[data.Move]) -> Operation:
    return lambda: store.transfer(next(stream))
