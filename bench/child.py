"""Child: the processes that a workload kills or weighs.

python -m bench.child fill PEER PATH ROWS           writes, says "acknowledged", waits to be killed
python -m bench.child memory PATH BUDGET BYTES      writes BYTES of rows, prints what it grew by
python -m bench.child reads PEER PATH ROWS SEED BUDGET    reads rows, prints what each takes
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench import data
from bench.peer import find
from bench.peers.siltstone import Siltstone

_BATCH_ROWS = 1_000
_WARM_UPS = 3
_READS, _MOVES = 20_000, 500


def _fill(name: str, path: str, rows: str) -> None:
    store = find(name)(Path(path), keep_log=True)
    table = data.base(int(rows))
    for start in range(0, table.num_rows, _BATCH_ROWS):
        store.upsert_batch(table.slice(start, _BATCH_ROWS))
    print("acknowledged", flush=True)
    time.sleep(600)  # the parent kills us; not for ever, should it have died


def _bytes(name: str) -> int:
    """Return a size of this process; `ru_maxrss` begins at its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(name)))


def resident_mib() -> float:
    """Return the resident memory of this process, with the pages of files that it shares."""
    return _bytes("VmRSS") / (1 << 20)


def _memory(path: str, budget: str, wanted: str) -> None:
    """Warm everything up that is used once, then write and read; see `workloads/memory.py`."""
    store = Siltstone(Path(path), memory_bytes_max=int(budget), tune_malloc=True)
    rows = max(100, min(2_000, int(budget) // 8 // data.DOCUMENT_BYTES))
    stream = data.documents(10 * int(budget) // data.DOCUMENT_BYTES, rows, 1)
    for _ in range(_WARM_UPS):
        store.upsert_documents(next(stream))
        store.settle()
        store.scan_documents()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    before, written, longest, begin = _bytes("VmRSS"), 0, 0.0, time.perf_counter()
    while written < int(wanted):
        batch = next(stream)
        start = time.perf_counter()
        store.upsert_documents(batch)
        longest = max(longest, time.perf_counter() - start)
        written += batch.nbytes
    seconds = time.perf_counter() - begin
    wrote = _bytes("VmHWM")
    largest = store.scan_documents()
    answer = {
        "before": before,
        "peak writing": wrote,
        "peak": _bytes("VmHWM"),
        "anonymous": _bytes("RssAnon"),
        "batch": largest,
        "written": written,
        "seconds": seconds,
        "longest": longest,
    }
    store.close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(json.dumps({**answer, "merge child": children}))


def _reads(name: str, path: str, rows: str, seed: str, budget: str) -> None:
    """Read rows, then move money between them; see `workloads/large_reads.py`."""
    kept = {"scratch": f"{path}.scratch", "cache_bytes_max": 1 << 40}
    options: dict[str, Any] = kept if name == Siltstone.name else {}
    if int(budget):
        options["memory_bytes_max"] = int(budget)
    store, rng = find(name)(Path(path), **options), np.random.default_rng(int(seed))

    def keys(count: int) -> list[int]:
        return rng.integers(0, int(rows), count).tolist()

    def read(some: list[int]) -> None:
        for key in some:
            store.get(key)

    read(keys(_READS))
    answer = {"get us": _processor_us(lambda: read(keys(_READS)), _READS)}
    rates = [_rate([keys(_READS // n) for _ in range(n)], read) for n in (1, 8)]
    answer["8 threads / 1"] = rates[1] / rates[0]
    moves = data.moves(int(rows), int(seed) + 1)
    answer["transfer us"] = _processor_us(
        lambda: [store.transfer(next(moves)) for _ in range(_MOVES)], _MOVES
    )
    print(json.dumps({**answer, "anonymous MiB": _bytes("RssAnon") / (1 << 20)}))
    store.close()


def _processor_us(work: Callable[[], object], count: int) -> float:
    begin = time.process_time()
    work()
    return (time.process_time() - begin) / count * 1e6


def _rate(keys: list[list[int]], read: Callable[[list[int]], None]) -> float:
    threads = [threading.Thread(target=read, args=(some,)) for some in keys]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(map(len, keys)) / (time.perf_counter() - begin)


if __name__ == "__main__":
    {"fill": _fill, "memory": _memory, "reads": _reads}[sys.argv[1]](*sys.argv[2:])
