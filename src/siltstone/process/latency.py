"""Latency: how many calls took how long, in buckets whose bounds never change.

Who measures adds in line, as below: on the way of a commit a call would cost more than it counts.

    took_s = clock_s() - begun_s
    with latency.lock:
        latency.buckets[bisect_left(BOUNDS_S, took_s)] += 1
        latency.seconds += took_s

Lock: one, held for the additions and for `taken`.
"""

from __future__ import annotations

import threading

BOUNDS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""The upper bounds of the buckets, each inclusive; one more bucket holds what took longer."""


class Latency:
    """See the module. `conflicts` counts the calls that lost a race, which are in no bucket."""

    __slots__ = ("buckets", "conflicts", "lock", "seconds")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0
        self.conflicts = 0

    def taken(self) -> tuple[list[int], float, int]:
        """Return the buckets, the seconds of all calls, and the conflicts, at one moment."""
        with self.lock:
            return list(self.buckets), self.seconds, self.conflicts
