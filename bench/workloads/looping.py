"""loop: upserts of an event loop beside threads, and how long others wait for the loop meanwhile.

The stall is what a task waits above the millisecond that it sleeps. It is measured beside 5,000
upserts a second, which the loop itself makes, and in the same loop beside threads that only
compute: these hold the interpreter's lock, as any Python beside a loop does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from itertools import count

from bench import data
from bench.data import Row, as_dict
from bench.measure import Operation, run_for
from bench.workload import Metrics, Place
from siltstone import aio

_WRITERS = 16
_ROWS = 100_000
_PER_SECOND = 5_000
_TICK_S = 0.001
_COMPUTING = 2
Upsert = Callable[[Row], Coroutine[None, None, None]]


class Looping:
    name = "loop"
    title = "upserts of an event loop"

    def prepare(self, peer: Place) -> None:
        peer.store.settle()  # opened before there are threads

    def measure(self, peer: Place, turn: int) -> Metrics:
        seconds = peer.sizes.seconds
        seeds = [turn * _WRITERS + n for n in range(_WRITERS)]
        writers = [_writer(peer, seed) for seed in seeds]
        run_for(seconds / 4, writers)
        threads = run_for(seconds, writers).rate
        peer.close()
        found = asyncio.run(_looped(peer, seeds, seconds))
        return {
            **found,
            "threads: upserts/s": threads,
            "rate / threads": found["upserts/s"] / threads,
        }


def _writer(peer: Place, seed: int) -> Operation:
    stream = data.rows(_ROWS, seed)

    def write() -> int:
        peer.store.upsert_one(next(stream))
        return 0

    return write


async def _looped(peer: Place, seeds: list[int], seconds: float) -> Metrics:
    async with aio.connect(peer.path) as db:
        accounts = db["accounts"]
        streams = [data.rows(_ROWS, seed) for seed in seeds]

        async def upsert(row: Row) -> None:
            await accounts.upsert(as_dict(row))

        await _rate(upsert, streams, seconds / 4)
        rate = await _rate(upsert, streams, seconds)
        made, stall = await _paced(upsert, data.rows(_ROWS, seeds[0]), seconds)
        computing = await _computing(seconds)
    return {
        "upserts/s": rate,
        "paced upserts/s": made,
        "p99 stall ms": 1e3 * stall,
        "p99 stall ms, computing": 1e3 * computing,
        "p99 stall / computing": stall / computing,
    }


async def _rate(upsert: Upsert, streams: list[Iterator[Row]], seconds: float) -> float:
    """Return how many upserts a second tasks make, each one after the other."""
    end, made = time.perf_counter() + seconds, count()

    async def write(stream: Iterator[Row]) -> None:
        while time.perf_counter() < end:
            await upsert(next(stream))
            next(made)

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for stream in streams:
            group.create_task(write(stream))
    return next(made) / (time.perf_counter() - begun)


async def _paced(upsert: Upsert, stream: Iterator[Row], seconds: float) -> tuple[float, float]:
    """Return how many upserts a second were made at the pace, and the stall beside them."""
    begun = time.perf_counter()
    made, stalls = 0, asyncio.ensure_future(_stalls(seconds))
    async with asyncio.TaskGroup() as group:
        while not stalls.done():
            due = int((time.perf_counter() - begun) * _PER_SECOND)
            for _ in range(min(due - made, _PER_SECOND // 20)):
                group.create_task(upsert(next(stream)))
                made += 1
            await asyncio.sleep(_TICK_S)
    return made / (time.perf_counter() - begun), await stalls


async def _computing(seconds: float) -> float:
    """Return the stall beside threads that only compute."""
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(1_000))

    threads = [threading.Thread(target=compute) for _ in range(_COMPUTING)]
    for thread in threads:
        thread.start()
    try:
        return await _stalls(seconds)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


async def _stalls(seconds: float) -> float:
    """Return the 99th percentile of what a task waits above its sleep (seconds)."""
    end, found = time.perf_counter() + seconds, list[float]()
    while (begun := time.perf_counter()) < end:
        await asyncio.sleep(_TICK_S)
        found.append(time.perf_counter() - begun - _TICK_S)
    return sorted(found)[int(0.99 * len(found))]
