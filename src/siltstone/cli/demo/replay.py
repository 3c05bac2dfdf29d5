"""Replay: the year's landings from several threads, beside readers, checkpoints and merges."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from siltstone.cli.demo import model
from siltstone.cli.demo.checks import Findings, scattered, violations
from siltstone.cli.demo.data import Flight
from siltstone.cli.demo.watching import Watcher
from siltstone.store import Store

CHECKPOINT_EVERY_S = 1.0
READER_PAUSE_S = 0.1
CHILD_POLL_S = 0.05
JOIN_TIMEOUT_S = 60


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
        self._stop = threading.Event()
        self._first_seq = store.seq
        self.done = Replayed()

    def run(self, seconds: float, threads: int, on_tick: Callable[[float, int], None]) -> Replayed:
        """Replay for `seconds`, or to the year's end; `on_tick` hears the seconds and landings."""
        parts = [self._now, self._past, self._checkpoint, self._merge, *[self._land] * threads]
        workers = [
            threading.Thread(target=self._guarded, args=(part,), daemon=True) for part in parts
        ]
        began = time.perf_counter()
        with Watcher(self._store.path, self._first_seq, self._findings):
            for worker in workers:
                worker.start()
            while (passed := time.perf_counter() - began) < seconds and not self._stop.is_set():
                on_tick(passed, len(self.done.latencies_s))
                self._stop.wait(0.1)
            self._stop.set()
            self.done.seconds = time.perf_counter() - began
            self._join(workers)
        self._settle()
        self.done.last_id = self._flights.taken
        return self.done

    def _join(self, workers: list[threading.Thread]) -> None:
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                self._findings.fail(f"a thread did not end in {JOIN_TIMEOUT_S} s")

    def _guarded(self, part: Callable[[], None]) -> None:
        """Run a part; whatever breaks it off is a finding, and the end of the replay."""
        try:
            part()
        except Exception as error:  # noqa: BLE001 - it is shown, and the demo fails
            self._findings.fail(f"{part.__name__}: {type(error).__name__}: {error}")
            self._stop.set()

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
        """Merge in one child process after the other, as the owner's own scheduler does."""
        command = [sys.executable, "-m", "siltstone", "merge", "--quiet"]
        while not self._stop.is_set():
            with subprocess.Popen(
                ["nice", "-n", "19", *command, "--db", str(self._store.path)],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            ) as child:
                while child.poll() is None and not self._stop.wait(CHILD_POLL_S):
                    pass
                self._end(child)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Count a merge that ended; kill one that did not: what it has not published is inert."""
        code = child.poll()
        if code is None:
            child.kill()
            return
        if code != 0:
            text = child.stderr.read().decode(errors="replace") if child.stderr else ""
            self._findings.fail(f"a merge ended with {code}: {' '.join(text.splitlines()[-1:])}")
        self.done.merges += 1

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
