"""W9: commits and point reads during checkpoint and merge, against the same when all is idle.

Two threads commit one row each time, one reads in bursts. The background work has 200,000 fresh
rows to fold into a base of 1 M. A target bounds how much longer the slowest of a thousand commits
and reads take beside it; the longest of all follows the disk and the other work of a machine.
"""

from __future__ import annotations

import time

import numpy as np

from bench import data
from bench.measure import Clients, Operation, Sample
from bench.peer import Peer
from bench.peers.siltstone import Siltstone
from bench.workload import Metrics, Place

_BASE_ROWS = 1_000_000
_BACKLOG_ROWS = 200_000
_BURST = 100


class Interference:
    name = "W9"
    title = "commits and reads during checkpoint and merge"

    def prepare(self, peer: Place) -> None:
        peer.store.load(data.base(peer.sizes.rows(_BASE_ROWS)))
        if isinstance(peer.store, Siltstone):
            peer.store.index("balance")
        peer.store.settle()

    def measure(self, peer: Place, turn: int) -> Metrics:
        rows = peer.sizes.rows(_BASE_ROWS)
        size = peer.sizes.rows(_BACKLOG_ROWS, 100)
        peer.store.upsert_batch(next(data.batches(rows, size, 50 + turn)))
        idle_commits, idle_reads = self._run(peer, 1 + 10 * turn, is_busy=False)
        commits, reads = self._run(peer, 5 + 10 * turn, is_busy=True)
        return {
            "commits/s idle": idle_commits.rate,
            "reads/s idle": idle_reads.rate,
            "commits kept": commits.rate / idle_commits.rate,
            "reads kept": reads.rate / idle_reads.rate,
            "commits' p99.9 ms idle": _tail(idle_commits),
            "commits' p99.9 / idle": _tail(commits) / _tail(idle_commits),
            "reads' p99.9 ms idle": _tail(idle_reads),
            "reads' p99.9 / idle": _tail(reads) / _tail(idle_reads),
            "longest commit ms idle": 1e3 * max(idle_commits.latencies),
            "longest commit ms": 1e3 * max(commits.latencies),
            "longest read ms": 1e3 * max(reads.latencies),
            "work s": commits.seconds,
        }

    def _run(self, peer: Place, seed: int, *, is_busy: bool) -> tuple[Sample, Sample]:
        rows = peer.sizes.rows(_BASE_ROWS)
        commits = Clients([_committer(peer.store, rows, seed + n) for n in range(2)])
        reads = Clients([_reader(peer.store, rows, seed)], pause_every=_BURST)
        commits.start()
        reads.start()
        if is_busy:
            peer.store.settle()
        else:
            time.sleep(peer.sizes.seconds)
        return commits.finish(), reads.finish()


def _tail(sample: Sample) -> float:
    return sample.percentile_ms(0.999)


def _committer(store: Peer, rows: int, seed: int) -> Operation:
    stream = data.rows(rows, seed)

    def operation() -> int:
        store.upsert_one(next(stream))
        return 0

    return operation


def _reader(store: Peer, rows: int, seed: int) -> Operation:
    keys = iter(np.random.default_rng(seed).integers(0, rows, 1_000_000).tolist())

    def operation() -> int:
        store.get(next(keys))
        return 0

    return operation
