"""Recording: a process lives a scenario while strace writes down what it does to its disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proof.defects.planted import ROOT
from proof.power.calls import TraceError, read_calls
from proof.power.events import TRACED, Event, Told, events_that_make, read_events
from proof.power.images import Image
from proof.power.machine import Machine, require_same

STRACE = shutil.which("strace")
LIFE_S_MAX = 300
_STRING_BYTES_MAX = 16 << 20
_STORE, _PLACE, _BEFORE, _WORD = "shop", "place", "before", "word"


@dataclass(frozen=True, slots=True)
class Recording:
    """One life: its events, and what a reader sees at each seq of it."""

    scenario: str
    events: Sequence[Event]
    answers: dict[str, dict[str, object]]


def record(
    scenario: str, folder: Path, source: Path = ROOT, before: Image | None = None
) -> Recording:
    """Live a scenario under strace.

    Args:
        scenario: Its name.
        folder: An empty one; what is needed to read the trace again stays in it.
        source: The root of the project, or of a copy of it with other sources.
        before: What lies on the disk when the life begins; by default nothing.

    Raises:
        TraceError: The process failed, or did what cannot be replayed.
    """
    disk, told, trace = _paths(folder)
    if before is None:
        disk.mkdir()
    else:
        before.lay_out(disk)
        before.lay_out(folder / _BEFORE)
        word = {"acknowledged": before.acknowledged, "begun": before.begun, "is_counting": True}
        (folder / _WORD).write_text(json.dumps(word))
    told.touch()
    (folder / _PLACE).write_text(str(folder.resolve()))
    subject = [sys.executable, "-m", "proof.power.subject", scenario, str(disk / _STORE), str(told)]
    strace = [str(STRACE), "-f", "-y", "-qq", "-xx", "--seccomp-bpf", "-s", str(_STRING_BYTES_MAX)]
    ended = subprocess.run(
        [*strace, "-e", f"trace={','.join(TRACED)}", "-o", str(trace), *subject],
        cwd=ROOT,
        env=environment_of(source),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIFE_S_MAX,
        check=False,
    )
    if ended.returncode != 0:
        raise TraceError(f"{scenario} failed: {ended.stdout.decode(errors='replace')[-4000:]}")
    return read(scenario, folder)


def read(scenario: str, folder: Path) -> Recording:
    """Return what was recorded in `folder`.

    Raises:
        TraceError: It cannot be replayed, or does not make what lies there.
    """
    disk, told, trace = _paths(folder)
    lived = Path((folder / _PLACE).read_text())  # it may have been moved since
    given: list[Event] = []
    if (folder / _BEFORE).exists():
        given = events_that_make(folder / _BEFORE)
        given.append(Told(json.loads((folder / _WORD).read_text())))
    with trace.open("rb") as lines:
        events = read_events(read_calls(lines), lived / disk.name, lived / told.name, given)
    machine = Machine(events)
    for _ in machine.moments():
        pass
    require_same(machine.disk, disk)
    return Recording(scenario, events, machine.word.answers)


def environment_of(source: Path) -> dict[str, str]:
    """Return the environment of a process that is to import the sources under `source`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(source / "src"), str(ROOT)])}


def _paths(folder: Path) -> tuple[Path, Path, Path]:
    folder = folder.resolve()
    return folder / "disk", folder / "told", folder / "trace"
