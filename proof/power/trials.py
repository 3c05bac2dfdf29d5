"""Trials: the disks of a scenario, laid out and checked, a few at a time.

A checker that dies or does not answer is a finding about its disk, and another takes its place.
"""

from __future__ import annotations

import json
import os
import queue
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from proof.defects.planted import ROOT
from proof.power.checker import Task
from proof.power.images import Image
from proof.power.recording import Recording, environment_of

CHECK_S_MAX = 300.0
_DISKS_PER_CHECKER = 300  # what Lance caches of stores that are gone goes with the process
_MEMORY = Path("/dev/shm")


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a new folder in memory, where there is such a place: syncs cost nothing there."""
    folder = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="siltstone-power-", dir=folder)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with an image."""

    image: Image
    reason: str


class _Worker:
    """One checker, respawned when it dies, hangs, or has seen enough."""

    def __init__(self, command: list[str], environment: dict[str, str], words: Path) -> None:
        self._command, self._environment, self._words = command, environment, words
        self._process: subprocess.Popen[bytes] | None = None
        self._checked = 0

    def check(self, task: Task) -> str | None:
        """Return what is wrong with a disk."""
        process = self._living()
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a checker has pipes")
        process.stdin.write(json.dumps(asdict(task)).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], CHECK_S_MAX)
        line = process.stdout.readline() if ready else b""
        if line.endswith(b"\n"):
            return json.loads(line)
        self.end()
        said = self._words.read_text(errors="replace")[-300:]
        how = (
            f"the checker died ({process.returncode})" if ready else f"no answer in {CHECK_S_MAX} s"
        )
        return f"{how}: {said}"

    def _living(self) -> subprocess.Popen[bytes]:
        if self._checked >= _DISKS_PER_CHECKER:
            self.end()
        if self._process is None:
            self._checked = 0
            with self._words.open("wb") as words:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=ROOT,
                    env=self._environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=words,
                )
        self._checked += 1
        return self._process

    def end(self) -> None:
        """End the checker, if one runs."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


class Bench:
    """Checks images of recordings, `jobs` at a time, with the sources under `source`."""

    def __init__(self, recording: Recording, folder: Path, jobs: int, source: Path = ROOT) -> None:
        self._folder = folder
        self._turns = 0
        self.turn_to(recording)
        command = [sys.executable, "-m", "proof.power.checker"]
        environment = environment_of(source)
        self._free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [
            _Worker(command, environment, folder / f"words-{number}") for number in range(jobs)
        ]
        for worker in self._workers:
            self._free.put(worker)

    def turn_to(self, recording: Recording) -> None:
        """Check images of another recording from now on; the checkers have Lance in memory."""
        self._turns += 1
        self._scenario, self._answers = recording.scenario, self._folder / f"answers-{self._turns}"
        self._answers.write_text(json.dumps(recording.answers))

    def run(
        self, images: Iterable[Image], *, findings_max: int, on_done: Callable[[int, int], None]
    ) -> tuple[int, list[Finding]]:
        """Check images; return how many, and what is wrong with them.

        Args:
            images: Taken one by one, as checkers get free.
            findings_max: Where to stop.
            on_done: Hears how many were checked, and how many of them are wrong.
        """
        findings: list[Finding] = []
        running: list[Future[Finding | None]] = []
        count = 0
        with ThreadPoolExecutor(len(self._workers)) as pool:
            for image in images:
                worker = self._free.get()  # the bound: no more disks lie about than are checked
                running = [each for each in running if not self._noted(each, findings)]
                if len(findings) >= findings_max:
                    self._free.put(worker)
                    break
                running.append(pool.submit(self._check, worker, count, image))
                count += 1
                on_done(count, len(findings))
        for each in running:
            self._noted(each, findings)
        return count, findings

    def _noted(self, done: Future[Finding | None], findings: list[Finding]) -> bool:
        if not done.done():
            return False
        found = done.result()
        if found is not None:
            findings.append(found)
        return True

    def _check(self, worker: _Worker, number: int, image: Image) -> Finding | None:
        folder = self._folder / f"disk-{number}"
        try:
            image.lay_out(folder)
            task = Task(
                scenario=self._scenario,
                answers=str(self._answers),
                root=str(folder / "shop"),
                number=image.chance,
                acknowledged=image.acknowledged,
                begun=image.begun,
            )
            reason = worker.check(task)
            return None if reason is None else Finding(image, reason)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self._free.put(worker)

    def end(self) -> None:
        """End all checkers."""
        for worker in self._workers:
            worker.end()
