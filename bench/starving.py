"""Starving: what readers that never pause leave to writers, `python -m bench.starving`.

Two threads upsert one row each time, alone and beside eight threads that get rows of a frozen chunk
and never pause: with real syncs, and with syncs that return at once. With real syncs the disk and
the interpreter lock take from the writers; without them the lock alone does. The shares are medians
of the rounds, of rates in one turn.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from bench import data
from bench.cpu import nobody_waits
from bench.measure import Clients, Operation, Sample
from bench.peers.siltstone import Siltstone

_ROWS, _RECENT = 100_000, 50_000
_WRITERS, _READERS = 2, 8


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser("python -m bench.starving", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="siltstone-starving-") as folder:
        store = Siltstone(Path(folder) / "store", background=False)
        store.load(data.base(_ROWS))
        store.settle()
        store.upsert_batch(data.accounts(np.arange(_RECENT), 1))
        for name, syncs in (("real syncs", contextlib.nullcontext), ("no syncs", nobody_waits)):
            with syncs():
                rounds = [_round(store, turn, given.seconds) for turn in range(given.rounds)]
            alone, beside, reads, longest = zip(*rounds, strict=True)
            kept = median(b / a for a, b in zip(alone, beside, strict=True))
            print(
                f"{name}: {median(alone):,.0f} writes/s alone, {median(beside):,.0f} beside"
                f" {median(reads):,.0f} gets/s, kept {kept:.2f}; the longest write"
                f" {max(longest):.0f} ms"
            )
        store.close()


def _round(store: Siltstone, turn: int, seconds: float) -> tuple[float, float, float, float]:
    alone = _beside(store, turn, seconds, readers=0)[0]
    writes, reads = _beside(store, turn, seconds, readers=_READERS)
    assert reads is not None
    return alone.rate, writes.rate, reads.rate, 1e3 * max(writes.latencies)


def _beside(
    store: Siltstone, turn: int, seconds: float, *, readers: int
) -> tuple[Sample, Sample | None]:
    writers = Clients([_writer(store, 1 + 10 * turn + n) for n in range(_WRITERS)])
    others = Clients([_reader(store, n) for n in range(readers)]) if readers else None
    if others is not None:
        others.start()
    writers.start()
    time.sleep(seconds)
    written = writers.finish()
    return written, None if others is None else others.finish()


def _writer(store: Siltstone, seed: int) -> Operation:
    stream = data.rows(_ROWS, seed)

    def operation() -> int:
        store.upsert_one(next(stream))
        return 0

    return operation


def _reader(store: Siltstone, seed: int) -> Operation:
    keys = np.random.default_rng(seed).integers(0, _RECENT, 1 << 20).tolist()
    place = 0

    def operation() -> int:
        nonlocal place
        place = (place + 1) % len(keys)
        store.get(keys[place])
        return 0

    return operation


if __name__ == "__main__":
    main()
