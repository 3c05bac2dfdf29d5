"""loop: upserts of an event loop beside threads, and how long others wait for the loop meanwhile.

Both write the same rows into a new store of their own, which is not checkpointed meanwhile. The
stall is what a task waits above the millisecond that it sleeps. It is measured beside 5,000 upserts
a second, which the loop itself makes, and in the same loop beside threads that only compute: these
hold the interpreter's lock, as any Python beside a loop does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from itertools import count, cycle, islice
from typing import Any

import siltstone as st
from bench import data
from bench.measure import Operation, run_for
from bench.workload import Metrics, Place
from siltstone import aio

_WRITERS = 16
_ROWS = 10_000
_PER_SECOND = 5_000
_TICK_S = 0.001
_COMPUTING = 2
_SLICES = 8
_KEEPS_LOG: Any = {"background": False, "memtable_bytes_max": 2 << 30, "memory_bytes_max": 8 << 30}
Row = dict[str, object]
Upsert = Callable[[Row], Coroutine[Any, Any, object]]


class Looping:
    name = "loop"
    title = "upserts of an event loop"

    def prepare(self, peer: Place) -> None:
        """Make the rows."""
        peer.notes["rows"] = [data.as_dict(row) for row in islice(data.rows(_ROWS, 1), _ROWS)]

    def measure(self, peer: Place, turn: int) -> Metrics:
        rows = peer.notes["rows"]
        assert isinstance(rows, list)
        threads, loop = peer.another(f"threads-{turn}"), peer.another(f"loop-{turn}")
        with st.connect(threads.path, **_KEEPS_LOG) as db:
            accounts = db.create_table("accounts", data.ACCOUNTS, "id")
            writers = [_writer(accounts, rows, n) for n in range(_WRITERS)]
            return asyncio.run(_measured(loop, rows, writers, peer.sizes.seconds / _SLICES))


def _writer(accounts: st.Table, rows: list[Row], number: int) -> Operation:
    own = cycle(rows[number::_WRITERS])

    def write() -> int:
        accounts.upsert(next(own))
        return 0

    return write


async def _measured(
    place: Place, rows: list[Row], writers: list[Operation], slice_s: float
) -> Metrics:
    """Measure threads and the loop by turns: whatever else the machine does hits both."""
    threads, tasks, paced = list[float](), list[float](), list[float]()
    beside_upserts, beside_computing = list[float](), list[float]()
    async with aio.connect(place.path, **_KEEPS_LOG) as db:
        accounts = await db.create_table("accounts", data.ACCOUNTS, "id")
        for _ in range(_SLICES):
            threads.append((await asyncio.to_thread(run_for, slice_s, writers)).rate)
            tasks.append(await _rate(accounts.upsert, rows, slice_s))
        for _ in range(_SLICES):
            paced.append(await _paced(accounts.upsert, rows, slice_s, beside_upserts))
            await _computing(slice_s, beside_computing)
    stall, computing = _p99(beside_upserts), _p99(beside_computing)
    return {
        "upserts/s": sum(tasks) / _SLICES,
        "threads: upserts/s": sum(threads) / _SLICES,
        "rate / threads": sum(tasks) / sum(threads),
        "paced upserts/s": sum(paced) / _SLICES,
        "p99 stall ms": 1e3 * stall,
        "p99 stall ms, computing": 1e3 * computing,
        "p99 stall / computing": stall / computing,
    }


async def _rate(upsert: Upsert, rows: list[Row], seconds: float) -> float:
    """Return how many upserts a second tasks make, each one after the other."""
    end, made = time.perf_counter() + seconds, count()

    async def write(number: int) -> None:
        own = cycle(rows[number::_WRITERS])
        while time.perf_counter() < end:
            await upsert(next(own))
            next(made)

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(_WRITERS):
            group.create_task(write(number))
    return next(made) / (time.perf_counter() - begun)


async def _paced(upsert: Upsert, rows: list[Row], seconds: float, stalls: list[float]) -> float:
    """Note the stalls beside upserts at the pace; return how many a second were made."""
    begun, own, made = time.perf_counter(), cycle(rows), 0
    noting = asyncio.ensure_future(_note_stalls(seconds, stalls))
    async with asyncio.TaskGroup() as group:
        while not noting.done():
            due = int((time.perf_counter() - begun) * _PER_SECOND)
            for _ in range(due - made):
                group.create_task(upsert(next(own)))
            made = due
            await asyncio.sleep(_TICK_S)
    return made / (time.perf_counter() - begun)


async def _computing(seconds: float, stalls: list[float]) -> None:
    """Note the stalls beside threads that only compute."""
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(1_000))

    threads = [threading.Thread(target=compute) for _ in range(_COMPUTING)]
    for thread in threads:
        thread.start()
    try:
        await _note_stalls(seconds, stalls)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


async def _note_stalls(seconds: float, stalls: list[float]) -> None:
    """Note what a task waits above its sleep (seconds), again and again."""
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        await asyncio.sleep(_TICK_S)
        stalls.append(time.perf_counter() - begun - _TICK_S)


def _p99(found: list[float]) -> float:
    return sorted(found)[int(0.99 * len(found))]
