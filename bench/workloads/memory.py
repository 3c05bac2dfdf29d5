"""Memory: a child writes 20 times `memory_bytes_max`; its peak resident size, beside the budget."""

from __future__ import annotations

import json
import subprocess
import sys

from bench.workload import Metrics, Place

_BUDGET_BYTES = 64 << 20
_FACTOR = 20


class Memory:
    name = "memory"
    title = "peak memory while writing 20 x memory_bytes_max"

    def prepare(self, peer: Place) -> None:
        del peer

    def measure(self, peer: Place, turn: int) -> Metrics:
        budget = max(8 << 20, int(_BUDGET_BYTES * peer.sizes.scale))
        fresh = peer.another(f"memory-{turn}")
        arguments = [str(fresh.path), str(budget), str(budget * _FACTOR)]
        command = [sys.executable, "-m", "bench.child", "memory", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        fresh.remove()
        found = json.loads(done.stdout)
        return {
            "budget MB": budget / 1e6,
            "peak MB": found["peak"] / 1e6,
            "peak MB before": found["before"] / 1e6,
            "grown / budget": (found["peak"] - found["before"]) / budget,
            "MB/s": found["written"] / found["seconds"] / 1e6,
        }
