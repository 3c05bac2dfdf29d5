"""Reader: a process beside the one that has the store open.

python -m bench.processes.reader PEER PATH ROWS SECONDS PAUSE_S    reads rows by key, and prints
what each took

It says "ready" and waits for a line, so that several begin at once. With a pause after each read
the writer beside it commits meanwhile: each read then finds something new.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from bench.child import resident_mib
from bench.peer import find
from bench.peers.siltstone import Siltstone

_SCANS, _STATEMENTS = 20, 10


def main(name: str, path: str, rows: str, seconds: str, pause: str) -> None:
    """Read for some seconds, then scan; a siltstone is joined, and asked by SQL, too."""
    options: dict[str, Any] = {"join": True} if name == Siltstone.name else {}
    store, pause_s = find(name)(Path(path), **options), float(pause)
    for key in range(10):
        store.get(key)
    print("ready", flush=True)
    sys.stdin.readline()
    took, processor = list[float](), list[float]()
    begin, count = time.perf_counter(), 0
    end = begin + float(seconds)
    while (now := time.perf_counter()) < end:
        used = time.thread_time()
        store.get(count % int(rows))
        processor.append(time.thread_time() - used)
        took.append(time.perf_counter() - now)
        count += 1
        if pause_s:
            time.sleep(pause_s)
    answer = {
        "rate": count / (time.perf_counter() - begin),
        "get us": 1e6 * statistics.median(took),
        "get CPU us": 1e6 * statistics.median(processor),
        "late get us": 1e6 * statistics.median(took[-len(took) // 4 :]),
        "MiB": resident_mib(),
        "scan ms": 1e3 * statistics.median(_timed(store.scan_all) for _ in range(_SCANS)),
    }
    if isinstance(store, Siltstone):
        took = [_timed(store.sql_count) for _ in range(_STATEMENTS)]
        answer["sql ms"] = 1e3 * statistics.median(took)
        answer["MiB after sql"] = resident_mib()
    store.close()
    print(json.dumps(answer))


def _timed(work: Any) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main(*sys.argv[1:])
