"""Crew: the threads of a demo, and its merges, all until they are stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from siltstone.cli.demo.checks import Findings
from siltstone.store import Store

JOIN_TIMEOUT_S = 60.0
TICK_S = 0.1
CHILD_POLL_S = 0.05


@dataclass
class Done:
    """What a crew did: `attempts` at transactions, of which those with a latency were committed."""

    seconds: float = 0.0
    attempts: int = 0
    merges: int = 0
    latencies_s: list[float] = field(default_factory=list[float])
    checkpoint_seqs: list[int] = field(default_factory=list[int])


class Crew:
    """Runs parts in a thread each; whatever breaks one off is a finding, and the end of all."""

    def __init__(self, findings: Findings, join_timeout_s: float = JOIN_TIMEOUT_S) -> None:
        self._findings, self._join_timeout_s = findings, join_timeout_s
        self.stop = threading.Event()
        self.done = Done()

    def run(
        self, parts: Sequence[Callable[[], None]], seconds: float, on_tick: Callable[[float], None]
    ) -> float:
        """Run the parts for `seconds`; `on_tick` hears how many have passed. Return how many did.

        A part looks at `stop` now and then and returns when it is set.
        """
        workers = [threading.Thread(target=self.guarded, args=(one,), daemon=True) for one in parts]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        while (passed := time.perf_counter() - began) < seconds and not self.stop.is_set():
            on_tick(passed)
            self.stop.wait(TICK_S)
        self.stop.set()
        self.done.seconds = time.perf_counter() - began
        self._join(workers)
        return self.done.seconds

    def _join(self, workers: list[threading.Thread]) -> None:
        deadline = time.monotonic() + self._join_timeout_s
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                self._findings.fail(f"a thread did not end in {self._join_timeout_s} s")

    def guarded(self, part: Callable[[], None]) -> None:
        """Run a part in this thread."""
        try:
            part()
        except Exception as error:  # noqa: BLE001 - it is shown, and the demo fails
            name = getattr(getattr(part, "func", part), "__name__", repr(part))  # or of a partial
            self._findings.fail(f"{name}: {type(error).__name__}: {error}")
            self.stop.set()

    def checkpoint(self, store: Store, every_s: float) -> None:
        """Checkpoint now and then."""
        while not self.stop.wait(every_s):
            store.checkpoint()
            self.done.checkpoint_seqs.append(store.seq)

    def merge(self, store: Store, pause_s: float = 0.0) -> None:
        """Merge in one child process after the other, as the owner's own scheduler does.

        One that is stopped is killed: what it has not published is inert.
        """
        command = ["nice", "-n", "19", sys.executable, "-m", "siltstone", "merge", "--quiet"]
        while not self.stop.is_set():
            with subprocess.Popen(
                [*command, "--db", str(store.path)],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            ) as child:
                while child.poll() is None and not self.stop.wait(CHILD_POLL_S):
                    pass
                self.done.merges += self._end(child)
            self.stop.wait(pause_s)

    def settle(self, store: Store) -> None:
        """Checkpoint and merge what is left."""
        store.checkpoint()
        store.merge()
        self.done.checkpoint_seqs.append(store.seq)
        self.done.merges += 1

    def _end(self, child: subprocess.Popen[bytes]) -> bool:
        code = child.poll()
        if code is None:
            child.kill()
            return False
        if code != 0:
            text = child.stderr.read().decode(errors="replace") if child.stderr else ""
            self._findings.fail(f"a merge ended with {code}: {' '.join(text.splitlines()[-1:])}")
        return True
