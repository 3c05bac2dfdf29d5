"""W7: scans of 1 M rows while batches of 1,000 rows are written; what each keeps of its rate."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from bench import data
from bench.measure import Clients, Operation, Sample, run_for
from bench.peer import Peer
from bench.workload import Metrics, Place

_BASE_ROWS = 1_000_000
_BATCH_ROWS = 1_000


class Mixed:
    name = "W7"
    title = "scans beside writes"

    def prepare(self, peer: Place) -> None:
        peer.store.load(data.base(peer.sizes.rows(_BASE_ROWS)))
        peer.store.settle()
        peer.store.scan_sum()

    def measure(self, peer: Place, turn: int) -> Metrics:
        size = peer.sizes.rows(_BATCH_ROWS, 100)
        stream = data.batches(peer.sizes.rows(_BASE_ROWS), size, turn + 1)
        made = _ahead(stream, 64)
        scan, write = _scanner(peer.store), _writer(peer.store, made)
        seconds = peer.sizes.seconds
        scans_alone = run_for(seconds, [scan])
        writes_alone = run_for(seconds, [write])
        scans, writes = _together(seconds, scan, write)
        peer.store.settle()
        return {
            "scans/s alone": scans_alone.rate,
            "scans/s writing": scans.rate,
            "scans/s kept": scans.rate / scans_alone.rate,
            "rows/s alone": writes_alone.rate * size,
            "rows/s kept": writes.rate / writes_alone.rate,
        }


def _together(seconds: float, scan: Operation, write: Operation) -> tuple[Sample, Sample]:
    reader, writer = Clients([scan]), Clients([write])
    writer.start()
    reader.start()
    time.sleep(seconds)
    return reader.finish(), writer.finish()


def _ahead(stream: Iterator[pa.Table], count: int) -> Iterator[pa.Table]:
    """Yield the first `count` batches of `stream` again and again, made beforehand."""
    made = [next(stream) for _ in range(count)]
    while True:
        yield from made


def _scanner(store: Peer) -> Operation:
    def operation() -> int:
        store.scan_sum()
        return 0

    return operation


def _writer(store: Peer, stream: Iterator[pa.Table]) -> Operation:
    def operation() -> int:
        store.upsert_batch(next(stream))
        return 0

    return operation
