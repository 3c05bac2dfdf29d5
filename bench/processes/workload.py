"""Processes: what a joined process pays for reads (`reads`), for a write, and four for theirs;
and how long a store is without an owner that was killed (`takeover`).

For the writes the owner is a process of its own and does nothing else; SQLite's processes share a
file. All write rows of their own, each in its own synced commit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import takeover, writes
from bench.processes.reads import Reads
from bench.workload import Metrics, Place

_TOGETHER = 4
_MODULE = "bench.processes.worker"


class Processes:
    name = "processes"
    title = "several processes on one store"

    def __init__(self) -> None:
        self._reads = Reads()

    def prepare(self, peer: Place) -> None:
        self._reads.prepare(peer)

    def measure(self, peer: Place, turn: int) -> Metrics:
        found = self._reads.measure(peer, turn) | self.writes(peer, turn)
        return found | (takeover.measure(peer, turn) if peer.name == "siltstone" else {})

    def writes(self, peer: Place, turn: int) -> Metrics:
        """Measure the writes, on a store of their own."""
        place = peer.another(f"processes-{turn}")
        with _owner(place) as owner:
            cpu = _cpu_us(owner)
            alone = _done(place, "upsert", 1)
            spent = _cpu_us(owner) - cpu
            together = _done(place, "upsert", _TOGETHER)
            transactions = _done(place, "transaction", 1)
        counts = [each["count"] for each in together]
        found: Metrics = {
            "upsert p50 ms": alone[0]["p50_ms"],
            "upserts/s, 4 processes": sum(counts) / place.sizes.seconds,
            "least share of 4": min(counts) / (sum(counts) / _TOGETHER),
            "transaction p50 ms": transactions[0]["p50_ms"],
        }
        if owner is not None:
            found["owner CPU us of an upsert"] = spent / alone[0]["count"]
        return found


@contextmanager
def _owner(place: Place) -> Generator[int | None]:
    """Yield the process that owns the store; SQLite has none."""
    if place.name != "siltstone":
        writes.fill_sqlite(place.path, _TOGETHER)
        yield None
        return
    process = _started(["own", str(place.path), str(_TOGETHER)])
    try:
        yield process.pid
    finally:
        process.communicate()


def _done(place: Place, work: str, processes: int) -> list[dict[str, float]]:
    """Return what some processes did at the same time."""
    given = [place.name, str(place.path), work]
    seconds = str(place.sizes.seconds)
    started = [_started([*given, str(seed), seconds]) for seed in range(processes)]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [json.loads(process.communicate()[0]) for process in started]


def _started(given: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", _MODULE, *given]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if line != "ready\n":
        process.kill()
        message = f"a process of {given} said {line!r}"
        raise RuntimeError(message)
    return process


def _cpu_us(process: int | None) -> float:
    """Return the CPU time that all threads of a process took."""
    if process is None:
        return 0.0
    tasks = Path(f"/proc/{process}/task")
    nanoseconds = 0
    for thread in tasks.iterdir():
        nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e3
