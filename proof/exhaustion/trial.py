"""Trial: all cycles of one cause in children of their own, and what is said of them.

A child that dies is followed by another one where the cause may end a process, and nowhere else.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from proof.exhaustion.causes import MORTAL
from proof.exhaustion.cycles import CYCLE_S_MAX
from proof.exhaustion.footprint import Footprint

ROOT = Path(__file__).parents[2]
MEAN_S_MAX = 10.0  # of the cycles of one child
TOLD_EACH_S = 60.0  # how far it is
START_S_MAX = 60.0 + CYCLE_S_MAX
GROWTH_BYTES_MAX = 24 << 20
"""What allocators (Python's, Arrow's, Lance's) keep varies by so much, however long it goes on."""
_LIBC_GAVE_UP = "out of memory", "cannot allocate memory"
"""What glibc says before it exits with 127: it found no memory for a thread's own data."""
_THREAD_LOST = re.compile(
    r"Exception ignored in thread started by.*^Timeout \(.*threading\.py\", line \d+ in start$",
    re.DOTALL | re.MULTILINE,
)
"""What CPython says of a thread that found no memory for its first call, and then the watch of
`cycles`: `Thread.start` waits for that thread for ever, in our threads and in those of any pool
(github.com/python/cpython/issues/140746)."""
NATIVE_GROWTH_MAX = 16
"""Threads of Lance's pool, which it starts when it first needs so many."""


@dataclass(slots=True)
class Outcome:
    """How the cycles of one cause went; `problems` is empty if all is well."""

    cause: str
    cycles: int = 0
    deaths: int = 0
    seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    footprints: list[Footprint] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_skipped: bool = False

    def line(self) -> str:
        """Return it for people."""
        if self.is_skipped:
            return f"{self.cause}: skipped, nothing may be mounted here"
        errors = ", ".join(f"{count} {name}" for name, count in sorted(self.errors.items()))
        text = f"{self.cause}: {self.cycles} cycles in {self.seconds:.0f} s, {errors or 'no error'}"
        if self.deaths:
            text += f", {self.deaths} processes died"
        if self.footprints:
            first, last = self.footprints[0], self.footprints[-1]
            text += (
                f"; descriptors {len(first.descriptors)} to {len(last.descriptors)}, threads"
                f" {first.threads} to {last.threads} ({first.native} to {last.native} native),"
                f" locks {last.locks}, memory {first.resident_bytes >> 20} to"
                f" {last.resident_bytes >> 20} MiB"
            )
        return "\n".join([text, *(f"  {problem}" for problem in self.problems)])


def run(cause: str, cycles: int, seed: int) -> Outcome:
    """Go through `cycles` of a cause; each child continues what the one before left."""
    outcome, told_s = Outcome(cause), 0.0
    with tempfile.TemporaryDirectory(prefix="siltstone-exhaustion-") as folder:
        while outcome.cycles < cycles and not outcome.problems:
            before, began = outcome.cycles, time.monotonic()
            _child(outcome, cycles - before, seed + outcome.deaths, Path(folder))
            outcome.seconds += time.monotonic() - began
            if outcome.seconds - told_s >= TOLD_EACH_S and outcome.cycles < cycles:
                told_s = outcome.seconds
                print(f"{cause}: {outcome.cycles} of {cycles} cycles", file=sys.stderr, flush=True)
            if outcome.is_skipped:
                return outcome
            if outcome.deaths > cycles + 5:
                outcome.problems.append("more processes died than cycles were asked for")
    outcome.problems += _grown(outcome.footprints)
    return outcome


def _child(outcome: Outcome, cycles: int, seed: int, folder: Path) -> None:
    command = [sys.executable, "-m", "proof.exhaustion.cycles", outcome.cause, str(cycles)]
    command += [str(seed), str(folder)]
    if outcome.cause == "disk-full":
        if not _may_mount():
            outcome.is_skipped = True
            return
        command = ["unshare", "--mount", *command]
    try:
        ran = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=START_S_MAX + cycles * MEAN_S_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        outcome.problems.append(f"hung: {' '.join(command)}")
        return
    lines = ran.stdout.splitlines()
    outcome.cycles += sum(line.startswith("cycle ") for line in lines)
    if ran.returncode == 0:
        _take(outcome, json.loads(lines[-1]))
    elif outcome.cause in MORTAL and _is_death(ran):
        outcome.deaths += 1
    else:
        told = "\n".join(ran.stderr.splitlines()[-15:])
        outcome.problems.append(f"exit {ran.returncode} of {' '.join(command)}:\n{told}")


def _is_death(ran: subprocess.CompletedProcess[str]) -> bool:
    """Say whether what is beneath us ended it: a signal, glibc's exit, a thread CPython lost."""
    gave_up = any(words in ran.stderr for words in _LIBC_GAVE_UP)
    lost = _THREAD_LOST.search(ran.stderr) is not None
    exits = {127: gave_up, 1: lost}
    return ran.returncode < 0 or exits.get(ran.returncode, False)


def _take(outcome: Outcome, said: dict[str, object]) -> None:
    errors, counts = said["errors"], said["footprints"]
    assert isinstance(errors, dict)
    assert isinstance(counts, list)
    for name, count in errors.items():
        outcome.errors[name] = outcome.errors.get(name, 0) + count
    outcome.footprints = [Footprint(**count) for count in counts]  # the last child's own


def _grown(counts: list[Footprint]) -> list[str]:
    """Say what grew between the third of ten counts and the last one, with every store closed."""
    if not counts:
        return []
    early, last = counts[min(2, len(counts) - 1)], counts[-1]
    found: list[str] = []
    if len(last.descriptors) > len(early.descriptors):
        found.append(f"descriptors: {early.descriptors} became {last.descriptors}")
    if last.threads > 1 or last.native > early.native + NATIVE_GROWTH_MAX:
        found.append(f"threads: {early} became {last}")
    if last.locks:
        found.append(f"{last.locks} locks are held though every store is closed")
    if last.resident_bytes > early.resident_bytes + GROWTH_BYTES_MAX:
        found.append(f"memory: {early.resident_bytes} bytes became {last.resident_bytes}")
    return found


def _may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", folder]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
