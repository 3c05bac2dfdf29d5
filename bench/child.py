"""Child: the processes that a workload kills or weighs.

python -m bench.child fill PEER PATH ROWS           writes, says "acknowledged", waits to be killed
python -m bench.child memory PATH BUDGET BYTES      writes BYTES of rows, prints its peak memory
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench import data
from bench.peer import find

_BATCH_ROWS = 1_000


def _fill(name: str, path: str, rows: str) -> None:
    store = find(name)(Path(path), keep_log=True)
    table = data.base(int(rows))
    for start in range(0, table.num_rows, _BATCH_ROWS):
        store.upsert_batch(table.slice(start, _BATCH_ROWS))
    print("acknowledged", flush=True)
    time.sleep(600)  # the parent kills us; not for ever, should it have died


def _peak_bytes() -> int:
    """Return the highest resident size of this process; `ru_maxrss` begins at its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))


def _memory(path: str, budget: str, wanted: str) -> None:
    from bench.peers.siltstone import Siltstone

    limits = {"memory_bytes_max": int(budget), "memtable_bytes_max": int(budget) // 4}
    store = Siltstone(Path(path), **limits)
    stream = data.batches(1_000_000, 10_000, 1)
    store.upsert_batch(next(stream))
    before, written, begin = _peak_bytes(), 0, time.perf_counter()
    while written < int(wanted):
        rows = next(stream)
        store.upsert_batch(rows)
        written += rows.nbytes
    seconds = time.perf_counter() - begin
    answer = {"before": before, "peak": _peak_bytes(), "written": written, "seconds": seconds}
    store.close()
    print(json.dumps(answer))


if __name__ == "__main__":
    {"fill": _fill, "memory": _memory}[sys.argv[1]](*sys.argv[2:])
