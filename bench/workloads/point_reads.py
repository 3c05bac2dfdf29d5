"""W4: whole rows by key, from what was just written, and cold from a base of 1 M rows.

Recent: of 100,000 rows that were upserted at once. Cold: after all background work and a reopen,
keys drawn from the whole base. The page cache is warm for everybody.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench import data
from bench.measure import Operation, run_for
from bench.peer import Peer
from bench.workload import Metrics, Place

_BASE_ROWS = 1_000_000
_RECENT_ROWS = 100_000
_THREADS = 8


class PointReads:
    name = "W4"
    title = "point reads, rows/s"

    def prepare(self, peer: Place) -> None:
        peer.store.load(data.base(peer.sizes.rows(_BASE_ROWS)))

    def measure(self, peer: Place, turn: int) -> Metrics:
        rng = np.random.default_rng(turn)
        everybody = peer.sizes.rows(_BASE_ROWS)
        recent = rng.choice(everybody, min(everybody, peer.sizes.rows(_RECENT_ROWS)), replace=False)
        found: Metrics = {}
        if peer.name != "lance":  # it has nothing between a commit and its base
            peer.store.upsert_batch(data.accounts(recent.astype(np.int64), turn + 1))
            keys = recent.tolist()
            found["recent"] = _rate(peer, keys)
            found["recent, 8 threads"] = _rate(peer, keys, _THREADS)
            found["recent, 8 threads / 1"] = found["recent, 8 threads"] / found["recent"]
        peer.store.settle()
        peer.close()
        found["cold"] = _rate(peer, rng.permutation(everybody).tolist())
        return found


def _rate(peer: Place, keys: list[int], threads: int = 1) -> float:
    _read(peer.store, keys[0])  # the opening is not the question
    starts = [len(keys) * place // threads for place in range(threads)]
    clients = [_client(peer.store, _cycle(keys[start:] + keys[:start])) for start in starts]
    return run_for(peer.sizes.seconds, clients).rate


def _cycle(keys: list[int]) -> Iterator[int]:
    while True:
        yield from keys


def _client(store: Peer, keys: Iterator[int]) -> Operation:
    def operation() -> int:
        _read(store, next(keys))
        return 0

    return operation


def _read(store: Peer, key: int) -> None:
    if not store.get(key):
        message = f"no row for key {key}"
        raise LookupError(message)
