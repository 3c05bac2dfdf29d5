"""Measure: clients in threads, and what they saw.

All threads start at one barrier; the time is from there to the end of the last one.
"""

from __future__ import annotations

import gc
import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Operation = Callable[[], int]  # does one unit of work, returns how often it was retried


@dataclass(slots=True)
class Sample:
    """What one or more clients did in `seconds`."""

    count: int = 0
    retries: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list[float])

    @property
    def rate(self) -> float:
        """Operations per second of wall time."""
        return self.count / self.seconds if self.seconds else 0.0

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Clients:
    """Threads that run their operations until `finish`. One lock: the barrier's own."""

    def __init__(self, operations: list[Operation], *, pause_every: int = 0) -> None:
        self._samples = [Sample() for _ in operations]
        self._errors: list[Exception] = []
        self._is_over = False
        self._pause_every = pause_every
        self._barrier = threading.Barrier(len(operations) + 1)
        self._threads = [
            threading.Thread(target=self._run, args=pair, daemon=True)
            for pair in zip(operations, self._samples, strict=True)
        ]

    def start(self) -> None:
        gc.collect()
        for thread in self._threads:
            thread.start()
        self._barrier.wait()
        self._begin = time.perf_counter()

    def finish(self) -> Sample:
        """Stop all clients; return their work together, or raise what one of them met."""
        self._is_over = True
        for thread in self._threads:
            thread.join()
        seconds = time.perf_counter() - self._begin
        if self._errors:
            raise self._errors[0]
        return Sample(
            sum(s.count for s in self._samples),
            sum(s.retries for s in self._samples),
            seconds,
            [latency for s in self._samples for latency in s.latencies],
        )

    def _run(self, operation: Operation, sample: Sample) -> None:
        self._barrier.wait()
        clock, note = time.perf_counter, sample.latencies.append
        try:
            while not self._is_over:
                begin = clock()
                sample.retries += operation()
                note(clock() - begin)
                sample.count += 1
                if self._pause_every and sample.count % self._pause_every == 0:
                    time.sleep(0.005)
        except Exception as error:
            self._errors.append(error)


def run_for(seconds: float, operations: list[Operation]) -> Sample:
    """Run one client per operation for `seconds`, at least one operation each."""
    clients = Clients(operations)
    clients.start()
    time.sleep(seconds)
    return clients.finish()


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    gc.collect()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def sync_tree(root: Path) -> None:
    """Sync every file and directory below `root`."""
    for folder, _, files in os.walk(root):
        for name in (*files, "."):
            descriptor = os.open(Path(folder) / name, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
