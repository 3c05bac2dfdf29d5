"""Crash: a writer is killed with SIGKILL in full flight; what it had acknowledged must be there.

python -m siltstone.cli.demo.crash STORE START THREADS      the writer: until it is killed it says
                                                            "id seq" of each landing
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from siltstone.cli.demo import data, model
from siltstone.cli.demo.checks import Findings, violations
from siltstone.cli.demo.data import Flight
from siltstone.cli.demo.replay import Shared
from siltstone.store import Store, connect

ACKNOWLEDGED_MIN = 500
WAIT_S = 60.0  # a bound for busy machines; a quiet one takes one second or two
PAST_CHECKS = 10
CHECKPOINT_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Crashed:
    """One crash: what was acknowledged before it, and how long the reopening took."""

    acknowledged: int
    reopen_s: float
    last_id: int


def crash(path: Path, start: int, threads: int, findings: Findings) -> Crashed:
    """Kill a writer that goes on from row `start` of the flights; reopen the store; check it."""
    acknowledged = _killed(path, start, threads)
    if not acknowledged:
        findings.fail(f"the writer acknowledged nothing in {WAIT_S} s")
    began = time.perf_counter()
    with connect(path) as store:
        reopen_s = time.perf_counter() - began
        findings.note("after SIGKILL", _survived(store, start, acknowledged, threads), 2)
        seqs = sorted(acknowledged.values())[:: max(1, len(acknowledged) // PAST_CHECKS)]
        for seq in [store.seq, *seqs]:
            with store.snapshot(seq=seq) as snapshot:
                findings.note("after SIGKILL", violations(snapshot))
    return Crashed(len(acknowledged), reopen_s, max(acknowledged, default=start) + threads)


def _killed(path: Path, start: int, threads: int) -> dict[int, int]:
    """Return flight id -> seq, as the writer acknowledged them before it was killed."""
    command = [sys.executable, "-m", "siltstone.cli.demo.crash", str(path)]
    acknowledged: dict[int, int] = {}
    with subprocess.Popen(
        [*command, str(start), str(threads)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as writer:
        assert writer.stdout is not None
        deadline = time.monotonic() + WAIT_S
        is_alive = True
        for line in writer.stdout:  # after the kill it ends with what the pipe still holds
            number, seq = line.split()
            acknowledged[int(number)] = int(seq)
            if is_alive and (len(acknowledged) >= ACKNOWLEDGED_MIN or time.monotonic() > deadline):
                writer.kill()
                is_alive = False
    return acknowledged


def _survived(store: Store, start: int, acknowledged: dict[int, int], threads: int) -> list[str]:
    wrong: list[str] = []
    found = set(store["flights"].to_arrow(["id"], f"id > {start}")["id"].to_pylist())
    lost = sorted(acknowledged.keys() - found)
    if lost or store.seq < max(acknowledged.values(), default=0):
        wrong.append(f"{len(lost)} acknowledged landings are lost, first {lost[:1]}")
    unasked = found - acknowledged.keys()
    if len(unasked) > threads:
        wrong.append(f"{len(unasked)} landings are there that {threads} threads cannot have begun")
    return wrong


def _write(store: Store, flights: Iterator[Flight]) -> None:
    for flight in flights:
        tx = store.run(model.landing(flight, [0]), model.ATTEMPTS)
        # One write of less than PIPE_BUF bytes is whole or not there at all.
        os.write(1, f"{flight['id']} {tx.seq}\n".encode())


def main() -> None:
    """Land flights, and checkpoint all the time, so that the kill may hit anything."""
    path, start, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    flights = Shared(data.landings(data.flights(), start))
    with connect(path, segment_bytes=1 << 20) as store:
        for _ in range(threads):
            threading.Thread(target=_write, args=(store, flights), daemon=True).start()
        pause = threading.Event()
        while not pause.wait(CHECKPOINT_EVERY_S):
            store.checkpoint()


if __name__ == "__main__":
    main()
