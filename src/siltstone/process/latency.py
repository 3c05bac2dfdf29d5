"""Latency: how many calls took how long, in buckets whose bounds never change.

A commit adds in line, as below: there a call would cost more than it counts. Others call `add`.

    took_s = clock_s() - begun_s
    with latency.lock:
        latency.buckets[bisect_left(BOUNDS_S, took_s)] += 1
        latency.seconds += took_s

Lock: one, held for the additions and for `taken`.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Sequence

BOUNDS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The upper bounds of the buckets, each inclusive; one more bucket holds what took longer."""


class Latency:
    """See the module. `conflicts` counts the calls that lost a race, which are in no bucket.

    `ended_s` is when the last call that was added by `add` ended, in seconds of 1970; 0: none did.
    """

    __slots__ = ("bounds_s", "buckets", "conflicts", "ended_s", "lock", "seconds")

    def __init__(self, bounds_s: Sequence[float] = BOUNDS_S) -> None:
        self.lock = threading.Lock()
        self.bounds_s = bounds_s
        self.buckets = [0] * (len(bounds_s) + 1)
        self.seconds = self.ended_s = 0.0
        self.conflicts = 0

    def add(self, took_s: float) -> None:
        """Count a call that ended just now."""
        ended_s = time.time()
        with self.lock:
            self.buckets[bisect_left(self.bounds_s, took_s)] += 1
            self.seconds += took_s
            self.ended_s = ended_s

    def taken(self) -> tuple[list[int], float, int]:
        """Return the buckets, the seconds of all calls, and the conflicts, at one moment."""
        with self.lock:
            return list(self.buckets), self.seconds, self.conflicts
