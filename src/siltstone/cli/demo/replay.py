"""Replay: the year's landings from several threads, beside readers, checkpoints and merges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from siltstone.cli.demo import model
from siltstone.cli.demo.checks import Findings, scattered, violations
from siltstone.cli.demo.crew import Crew
from siltstone.cli.demo.data import Flight
from siltstone.cli.demo.watching import Watcher
from siltstone.store import Store

CHECKPOINT_EVERY_S = 1.0
READER_PAUSE_S = 0.1


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


@dataclass
class Replayed:
    """What the replay did."""

    seconds: float = 0.0
    last_id: int = 0
    attempts: int = 0
    checkpoints: int = 0
    merges: int = 0
    latencies_s: list[float] = field(default_factory=list[float])
    seqs: list[int] = field(default_factory=list[int])


class Replay:
    """Runs all parts of the replay until its time is over."""

    def __init__(self, store: Store, flights: Shared, findings: Findings) -> None:
        self._store, self._flights, self._findings = store, flights, findings
        self._crew = Crew(findings)
        self._stop = self._crew.stop
        self._first_seq = store.seq
        self.done = Replayed()

    def run(self, seconds: float, threads: int, on_tick: Callable[[float, int], None]) -> Replayed:
        """Replay for `seconds`, or to the year's end; `on_tick` hears the seconds and landings."""
        parts = [self._now, self._past, self._checkpoint, self._merge, *[self._land] * threads]
        with Watcher(self._store.path, self._first_seq, self._findings):
            self.done.seconds = self._crew.run(
                parts, seconds, lambda passed: on_tick(passed, len(self.done.latencies_s))
            )
        self._settle()
        self.done.last_id = self._flights.taken
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

    def _now(self) -> None:
        while not self._stop.wait(READER_PAUSE_S):
            self._now_once()

    def _past(self) -> None:
        for share in scattered():
            if self._stop.wait(READER_PAUSE_S):
                return
            seq = self._first_seq + int(share * (self._store.seq - self._first_seq))
            with self._store.snapshot(seq=seq) as snapshot:
                self._findings.note("this process, past", violations(snapshot))

    def _checkpoint(self) -> None:
        while not self._stop.wait(CHECKPOINT_EVERY_S):
            self._store.checkpoint()
            self.done.checkpoints += 1
            self.done.seqs.append(self._store.seq)

    def _merge(self) -> None:
        self.done.merges += self._crew.merge(self._store.path)

    def _settle(self) -> None:
        """Checkpoint and merge what the replay left, and look once more."""
        self._store.checkpoint()
        self._store.merge()
        self.done.checkpoints += 1
        self.done.merges += 1
        self._now_once()

    def _now_once(self) -> None:
        with self._store.snapshot() as snapshot:
            self._findings.note("this process, now", violations(snapshot))
