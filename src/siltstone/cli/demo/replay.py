"""Replay: the year's landings from several threads, with readers, checkpoints and merges."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

from siltstone.cli.demo import model
from siltstone.cli.demo.checks import Findings
from siltstone.cli.demo.crew import Crew, Done
from siltstone.cli.demo.data import Flight
from siltstone.cli.demo.watcher import watch, watched
from siltstone.cli.progress import progress_bar
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


def replay(store: Store, flights: Shared, findings: Findings, seconds: float, threads: int) -> Done:
    """Run all parts of the replay for `seconds`, or to the year's end; then look once more."""
    crew, first_seq = Crew(findings), store.seq
    watching = partial(watch, "this process", store, first_seq, crew.stop, findings)
    checkpoint = partial(crew.checkpoint, store, CHECKPOINT_EVERY_S)
    lands = [partial(_land, store, flights, crew)] * threads
    parts = [watching, checkpoint, partial(crew.merge, store), *lands]
    with progress_bar("replaying") as told, watched(store.path, first_seq, findings):

        def tick(passed: float) -> None:
            told(f"{len(crew.done.latencies_s):,} landings", int(passed), int(seconds))

        crew.run(parts, seconds, tick)
    crew.settle(store)
    watching()
    return crew.done


def _land(store: Store, flights: Shared, crew: Crew) -> None:
    attempts = [0]
    for flight in flights:
        began = time.perf_counter()
        store.run(model.landing(flight, attempts), model.ATTEMPTS)
        crew.done.latencies_s.append(time.perf_counter() - began)
        if crew.stop.is_set():
            break
    crew.done.attempts += attempts[0]
