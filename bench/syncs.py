"""Syncs: when this process waits for the disk, and how long that takes by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Syncs:
    """The syncs of this process: when each began and ended."""

    times: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    def clear(self) -> None:
        self.times.clear()

    def seconds(self) -> float:
        """Return how long at least one of them ran."""
        total = reached = 0.0
        for begun, ended in sorted(self.times):
            total += max(0.0, ended - max(begun, reached))
            reached = max(reached, ended)
        return total


@contextmanager
def noted_syncs() -> Generator[Syncs]:
    """Note each sync of this process in the block."""
    found, saved = Syncs(), (os.fsync, os.fdatasync, os.pwritev)

    def noted(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            begun = time.perf_counter()
            try:
                return work(*given)
            finally:
                found.times.append((begun, time.perf_counter()))

        return call

    def written(*given: Any) -> int:
        is_synced = len(given) > 3 and given[3] & os.RWF_DSYNC
        return (noted(saved[2]) if is_synced else saved[2])(*given)

    os.fsync, os.fdatasync, os.pwritev = noted(saved[0]), noted(saved[1]), written
    try:
        yield found
    finally:
        os.fsync, os.fdatasync, os.pwritev = saved
