"""Turns: each query asked of several, one after the other, and how long they took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Query = TypeVar("Query")
LANCE, BLOCKED, OURS, COMMITTED = "lance", "lance, blocked", "siltstone", "after a commit"


def measured(
    calls: Mapping[str, Callable[[Query], object]],
    queries: Sequence[Query],
    commit: Callable[[int, Query], object],
) -> dict[str, tuple[float, float]]:
    """Return the median wall time and the mean CPU of each call, in milliseconds.

    The first fifth of the queries warms up. `COMMITTED` is asked right after a commit of one row.
    """
    walls: dict[str, list[float]] = {name: [] for name in calls}
    cpus: dict[str, list[float]] = {name: [] for name in calls}
    for turn, query in enumerate(queries):
        for name, call in calls.items():
            if name == COMMITTED:
                commit(turn, query)
            wall, cpu = time.perf_counter(), time.process_time()
            call(query)
            walls[name].append(time.perf_counter() - wall)
            cpus[name].append(time.process_time() - cpu)
    warm = len(queries) // 5
    return {
        name: (
            1e3 * statistics.median(walls[name][warm:]),
            1e3 * statistics.mean(cpus[name][warm:]),
        )
        for name in calls
    }
