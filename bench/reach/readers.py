"""Readers: how long after a shipped commit began a reader at the URL shows it.

The owner commits without a pause, and each commit waits for its put; the reader looks once a second
at most. So a commit waits for the put before its own, for its own, and for the next look, which
asks for it. "Puts" are what the slowest of a hundred takes beyond that second.
"""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import siltstone as st
from bench.measure import median
from bench.reach.lake import Door
from bench.workload import Metrics

POLL_S = 1.0
_SECONDS_MIN, _ADDED_MS, _PAUSE_S = 4.0, 30, 0.002


def lag(door: Door, folder: Path, seconds: float) -> Metrics:
    """Measure it at the door with 30 ms added, for some seconds."""
    url, settings = door.url(), door.settings
    begun: dict[int, float] = {}
    puts: list[float] = []
    with st.connect(folder / "followed", mirror=url, storage_options=settings) as db:
        table = db.create_table("t", {"id": "int64"}, primary_key="id")
        db.checkpoint()
        db.wait_shipped()
        with st.connect(url, read_only=True, storage_options=settings) as far:
            first = far.seq
            watch = _Watch(far)
            end = time.perf_counter() + max(seconds, _SECONDS_MIN)
            for number in itertools.count():
                begin = time.perf_counter()
                if begin > end:
                    break
                with db.transaction(durability="shipped") as tx:
                    tx[table.name].upsert({"id": number})
                assert tx.seq is not None
                begun[tx.seq] = begin
                puts.append(time.perf_counter() - begin)
            seen = watch.until(max(begun))
    lags = sorted(seen(seq) - begin for seq, begin in begun.items() if seq > first)
    p99 = lags[min(len(lags) - 1, int(0.99 * len(lags)))]
    label = f", {_ADDED_MS} ms added"
    return {
        f"reader: lag p50 ms{label}": 1e3 * median(lags),
        f"reader: lag p99 ms{label}": 1e3 * p99,
        f"reader: lag p99 beyond a look, puts{label}": (p99 - POLL_S) / median(puts),
    }


class _Watch:
    """A thread that asks a reader for its seq, and notes when it changed."""

    def __init__(self, far: st.Store) -> None:
        self._far, self._shown = far, [(far.seq, time.perf_counter())]
        self._wanted: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._wanted is None or self._shown[-1][0] < self._wanted:
            seq = self._far.seq
            if seq > self._shown[-1][0]:
                self._shown.append((seq, time.perf_counter()))
            time.sleep(_PAUSE_S)

    def until(self, seq: int) -> _Seen:
        """Wait until a seq is shown; return what tells when each was."""
        self._wanted = seq
        self._thread.join()
        return _Seen(self._shown)


class _Seen:
    """When each seq was shown first."""

    def __init__(self, shown: list[tuple[int, float]]) -> None:
        self._shown = shown

    def __call__(self, seq: int) -> float:
        return next(when for known, when in self._shown if known >= seq)
