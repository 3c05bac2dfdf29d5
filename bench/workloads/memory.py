"""Memory: what a child has that writes 20 times `memory_bytes_max`, then scans it all.

It runs with `tune_malloc`, as servers and the command line do. The anonymous memory at its end is
all that a system cannot take back: files that are mapped or cached are none of it.

Resident memory, with all that allocators keep, is compared with what it was after a warm-up (write,
checkpoint, merge and scan, three times): Lance and Arrow take some 300 MB before the first row.
"Two batches" are each as large as the largest that the scan gave. The merges run in a process of
their own, whose peak stands beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys

from bench.workload import Metrics, Place

_BUDGET_BYTES, _LARGE_BYTES = 64 << 20, 256 << 20
_FACTOR = 20
_BATCHES = 2


class Memory:
    name = "memory"
    title = "growth of memory while 20 x memory_bytes_max are written"

    def prepare(self, peer: Place) -> None:
        del peer

    def measure(self, peer: Place, turn: int) -> Metrics:
        budget = max(8 << 20, int(_BUDGET_BYTES * peer.sizes.scale))
        large = max(budget, int(_LARGE_BYTES * peer.sizes.scale))
        found = _child(peer, turn, budget)
        grown, batches = found["peak"] - found["before"], _BATCHES * found["batch"]
        return {
            "budget MB": budget / 1e6,
            "written MB": found["written"] / 1e6,
            "warm MB": found["before"] / 1e6,
            "grown writing MB": (found["peak writing"] - found["before"]) / 1e6,
            "grown MB": grown / 1e6,
            "two batches MB": batches / 1e6,
            "grown writing / budget": (found["peak writing"] - found["before"]) / budget,
            "grown / (budget + two batches)": grown / (budget + batches),
            "merge child MB": found["merge child"] / 1e6,
            "anonymous MiB, budget of 64": found["anonymous"] / (1 << 20),
            "anonymous MiB, budget of 256": _child(peer, turn, large)["anonymous"] / (1 << 20),
            "MB/s": found["written"] / found["seconds"] / 1e6,
            "longest write s": found["longest"],
        }


def _child(peer: Place, turn: int, budget: int) -> dict[str, float]:
    """Return what a child with so many bytes of memory says of itself."""
    fresh = peer.another(f"memory-{turn}")
    arguments = [str(fresh.path), str(budget), str(budget * _FACTOR)]
    command = [sys.executable, "-m", "bench.child", "memory", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    fresh.remove()
    return json.loads(done.stdout)
