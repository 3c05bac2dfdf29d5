"""Work: what a commit, a read and a transfer cost of processor time.

Where it says "without its sync" a frame is written as always, and then nobody waits for the disk.
Times are of one thread (`time.thread_time`), but for eight threads of the process, with all syncs,
in microseconds for each transfer. As a program it prints its figures as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

_ROWS = 100_000
_UPSERTS, _GETS, _TRANSFERS = 6_000, 20_000, 2_000
_FROZEN = 40_000
_THREADS, _THREADS_S = 8, 3.0


def measured(folder: Path) -> dict[str, float]:
    """Return what each kind of work costs; see the module."""
    from bench import data
    from bench.peers.siltstone import Siltstone

    store: Any = Siltstone(folder / "store", background=False)
    store.load(data.base(_ROWS))
    store.settle()
    accounts: Any = vars(store)["_accounts"]
    found: dict[str, float] = {}
    with nobody_waits():
        rows = [data.as_dict(row) for row in itertools.islice(data.rows(_ROWS, 1), _UPSERTS)]
        found["commit us"] = _each(accounts.upsert, rows)
        moves = [*itertools.islice(data.moves(_ROWS, 1), _TRANSFERS)]
        found["transfer, without its sync us"] = _each(store.transfer, moves)
        newest = [row["id"] for row in rows[-2_000:]] * 10
        for row in rows[-2_000:]:
            accounts.upsert(row)
        found["get of the newest rows us"] = _each(store.get, newest)
        frozen = [row.id for row in itertools.islice(data.rows(_ROWS, 2), _FROZEN)]
        for key in [*frozen, *range(5_000)]:
            accounts.upsert({"id": key, "balance": 1, "name": "frozen", "updated": None})
        found["get of frozen rows us"] = _each(store.get, frozen[:_GETS])
        found["get of rows of base us"] = _each(store.get, [*range(_ROWS // 2, _ROWS // 2 + 2_000)])
    used, switches = _in_threads(lambda seed: iter(data.moves(_ROWS, seed)), store.transfer)
    found["transfer us"] = used
    found["transfer switches"] = switches
    store.close()
    return found


def _each(work: Callable[[Any], object], given: list[Any]) -> float:
    """Return the microseconds of processor time of one call: the median of ten parts."""
    size = max(1, len(given) // 10)
    took: list[float] = []
    for start in range(0, len(given) - size + 1, size):
        part = given[start : start + size]
        begun = time.thread_time()
        for each in part:
            work(each)
        took.append((time.thread_time() - begun) / size * 1e6)
    return median(took)


def _in_threads(
    given: Callable[[int], Iterator[Any]], work: Callable[[Any], object]
) -> tuple[float, float]:
    """Return the microseconds of processor time and the context switches of one call."""
    counts = [0] * _THREADS
    end = time.monotonic() + _THREADS_S

    def client(place: int) -> None:
        stream = given(10 + place)
        while time.monotonic() < end:
            work(next(stream))
            counts[place] += 1

    threads = [threading.Thread(target=client, args=[place]) for place in range(_THREADS)]
    before = resource.getrusage(resource.RUSAGE_SELF)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    done = sum(counts)
    return used / done * 1e6, (after.ru_nvcsw - before.ru_nvcsw) / done


@contextmanager
def nobody_waits() -> Generator[None]:
    """Let each sync return at once."""
    sync, write = os.fdatasync, os.pwritev
    os.fdatasync = lambda _: None
    os.pwritev = lambda fd, buffers, offset, *_: write(fd, buffers, offset)
    try:
        yield
    finally:
        os.fdatasync, os.pwritev = sync, write


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="siltstone-cpu-") as own:
        sys.stdout.write(json.dumps(measured(Path(own))))
