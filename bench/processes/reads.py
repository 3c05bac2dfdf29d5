"""Reads: what workers that have joined pay for reads, alone and beside a writer.

The store has 50,000 accounts; this process has it open, the workers read by key. `two / one` are
the reads a second of two workers over those of one, without a writer. Beside the writer, which
commits a thousand rows a second over all keys, each read finds something new; `late` ones are those
of the last quarter. A scan and a statement read a table of 1,000 rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import Protocol, cast

from bench import data
from bench.peer import Peer
from bench.workload import Metrics, Place

_KEYS, _SMALL = 50_000, 1_000
_PAUSE_S = 0.001
_WRITING_SECONDS = 10  # times those of other measurements: a follower may grow slow


class _Shared(Peer, Protocol):
    """A peer that several processes may use."""

    def let_join(self) -> None:
        """Let other processes use the store, too, from now on."""


class Reads:
    """See the module: the half of `Processes` that reads."""

    def prepare(self, peer: Place) -> None:
        peer.store.load(data.base(_KEYS))
        small = peer.another("small")
        small.store.load(data.base(_SMALL))
        peer.notes["small"] = small

    def measure(self, peer: Place, turn: int) -> Metrics:
        seconds = peer.sizes.seconds
        small = peer.notes["small"]
        assert isinstance(small, Place)
        one = _workers(small, 1, _SMALL, seconds)[0]
        two = _workers(small, 2, _SMALL, seconds)
        busy = _beside_a_writer(peer, seconds * _WRITING_SECONDS, turn)
        found = {
            "get us": one["get us"],
            "two / one": sum(each["rate"] for each in two) / one["rate"],
            "scan ms": one["scan ms"],
            "MiB": busy["MiB"],
            "get us, writing": busy["get us"],
            "get CPU us, writing": busy["get CPU us"],
            "late / all, writing": busy["late get us"] / busy["get us"],
        }
        for name in ("sql ms", "MiB after sql"):
            if name in one:
                found[name] = one[name]
        return found


def _beside_a_writer(peer: Place, seconds: float, turn: int) -> Metrics:
    stop, rows = threading.Event(), data.rows(_KEYS, 1 + turn)

    def write() -> None:
        due = time.perf_counter()
        while not stop.is_set():
            peer.store.upsert_one(next(rows))
            due += _PAUSE_S
            time.sleep(max(0.0, due - time.perf_counter()))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return _workers(peer, 1, _KEYS, seconds, _PAUSE_S)[0]
    finally:
        stop.set()
        writer.join()


def _workers(
    peer: Place, count: int, rows: int, seconds: float, pause_s: float = 0.0
) -> list[Metrics]:
    """Return what some workers found that read at the same time."""
    cast("_Shared", peer.store).let_join()
    told = [peer.name, str(peer.path), str(rows), str(seconds), str(pause_s)]
    command = [sys.executable, "-m", "bench.processes.reader", *told]
    with ExitStack() as ends:
        started = [
            ends.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
                )
            )
            for _ in range(count)
        ]
        for worker in started:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n", "a worker failed"
        for worker in started:
            assert worker.stdin is not None
            worker.stdin.write("\n")
        return [json.loads(worker.communicate()[0]) for worker in started]
