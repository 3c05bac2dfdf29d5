"""Worker: one of several processes.

python -m bench.processes.worker own PATH PROCESSES         owns a store and serves it until EOF
python -m bench.processes.worker siltstone|sqlite PATH WORK SEED SECONDS      prints what it did
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import siltstone as st
from bench.processes import writes

_WARM_UPS = 50
_OF = {"siltstone": writes.of_siltstone, "sqlite": writes.of_sqlite}


def own(path: Path, processes: int) -> None:
    """Own a new store, and serve it."""
    with st.connect(path) as db:
        writes.fill_siltstone(db, processes)
        db.serve_local()
        print("ready", flush=True)
        sys.stdin.read()


def work(peer: str, path: Path, name: str, seed: int, seconds: float) -> None:
    """Do one kind of work once this process is told to, for `seconds`."""
    with _OF[peer](path, seed) as works:
        operation = works[name]
        for _ in range(_WARM_UPS):
            operation()
        print("ready", flush=True)
        sys.stdin.readline()
        took: list[float] = []
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            operation()
            took.append(time.perf_counter() - begun)
    took.sort()
    print(json.dumps({"count": len(took), "p50_ms": 1e3 * took[len(took) // 2]}), flush=True)


def main(kind: str, path: str, *given: str) -> None:
    if kind == "own":
        own(Path(path), int(given[0]))
    else:
        work(kind, Path(path), given[0], int(given[1]), float(given[2]))


if __name__ == "__main__":
    main(*sys.argv[1:])
