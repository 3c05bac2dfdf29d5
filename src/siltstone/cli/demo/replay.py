"""Replay: the year's landings from several threads, with readers, checkpoints and merges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from siltstone.cli.demo import model
from siltstone.cli.demo.checks import Findings
from siltstone.cli.demo.crew import Crew, Done
from siltstone.cli.demo.data import Flight
from siltstone.cli.demo.watcher import watch, watched
from siltstone.store import Store

CHECKPOINT_EVERY_S = 1.0


class Shared:
    """An iterator that several threads share. Lock: one, held for one step."""

    def __init__(self, items: Iterator[Flight]) -> None:
        self._items, self._lock = items, threading.Lock()
        self.taken: int = 0

    def __iter__(self) -> Iterator[Flight]:
        return self

    def __next__(self) -> Flight:
        with self._lock:
            item = next(self._items)
            self.taken = max(self.taken, int(item["id"]))  # type: ignore[call-overload]
            return item


class Replay:
    """Runs all parts of the replay until its time is over."""

    def __init__(self, store: Store, flights: Shared, findings: Findings) -> None:
        self._store, self._flights, self._findings = store, flights, findings
        self._crew = Crew(findings)
        self._stop, self.done = self._crew.stop, self._crew.done
        self._first_seq = store.seq

    def run(self, seconds: float, threads: int, on_tick: Callable[[float], None]) -> Done:
        """Replay for `seconds`, or to the year's end; `on_tick` hears how many have passed."""
        checkpoint = partial(self._crew.checkpoint, self._store, CHECKPOINT_EVERY_S)
        merge = partial(self._crew.merge, self._store)
        parts = [self._watch, checkpoint, merge, *[self._land] * threads]
        with watched(self._store.path, self._first_seq, self._findings):
            self._crew.run(parts, seconds, on_tick)
        self._crew.settle(self._store)
        self._watch()
        return self.done

    def _land(self) -> None:
        attempts, latencies = [0], self.done.latencies_s
        for flight in self._flights:
            began = time.perf_counter()
            self._store.run(model.landing(flight, attempts), model.ATTEMPTS)
            latencies.append(time.perf_counter() - began)
            if self._stop.is_set():
                break
        self.done.attempts += attempts[0]

    def _watch(self) -> None:
        """Watch until the replay ends; after that once more."""
        watch("this process", self._store, self._first_seq, self._stop, self._findings)
