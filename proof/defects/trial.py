"""Trial: run the suite of a defect on a copy of the source, without it and with it.

    copy of src ──suite──▶ must pass          else BROKEN: the suite says nothing about the defect
    the defect planted in a copy ──suite──▶   a test fails: CAUGHT;  all pass: UNDETECTED

The copy comes first on PYTHONPATH, so child processes have it, too. Nothing is written outside the
temporary directory; an example that Hypothesis finds is not kept, or the next trial would begin
with it.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from proof.defects.planted import ROOT, Planted

SUITE_S_MAX = 300.0
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::[^\n]*?)(?: - .*)?$", re.MULTILINE)
_PASSED, _SOME_FAILED = 0, 1
_TOLD_LINES = 30


class Verdict(Enum):
    CAUGHT = "caught"
    UNDETECTED = "UNDETECTED"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a suite ended: `code` of pytest (None: not within `SUITE_S_MAX`), seconds, its words."""

    code: int | None
    seconds: float
    output: str

    @property
    def failed(self) -> str:
        """The first test that failed; empty if none is named."""
        found = _FAILED.search(self.output)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one defect.

    `seconds` is the time to detection: from the start of pytest to the first test that failed;
    `sound_s` what the whole suite takes without the defect; `tried` the day, empty for one that
    was tried before days were noted.
    """

    planted: Planted
    verdict: Verdict
    seconds: float
    sound_s: float
    caught_by: str = ""
    reason: str = ""
    tried: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        planted = self.planted
        return {
            "name": planted.name,
            "title": planted.title,
            "breaks": planted.breaks,
            "suite": planted.suite,
            "patch": planted.digest,
            "verdict": self.verdict.value,
            "seconds": round(self.seconds, 1),
            "sound_s": round(self.sound_s, 1),
            "caught_by": self.caught_by,
            "reason": self.reason,
            "tried": self.tried,
        }


class Trials:
    """Trials in one temporary directory; a suite that several defects share runs once without."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sound = _copy(folder / "sound")
        self._known: dict[tuple[str, ...], Ran] = {}

    def sound(self, suite: tuple[str, ...]) -> Ran:
        """Run a suite on the source as it is."""
        if suite not in self._known:
            self._known[suite] = run_suite(self._sound, suite)
        return self._known[suite]

    def run(self, planted: Planted) -> Outcome:
        """Try one defect.

        Raises:
            PatchError: It does not fit the source any more.
        """
        root = _copy(self._folder / planted.name)
        try:
            planted.plant(root)
            before = self.sound(planted.suite)
            if before.code != _PASSED:
                return _broken(planted, before, before, "the suite does not pass without it")
            return _judged(planted, before, run_suite(root, planted.suite))
        finally:
            shutil.rmtree(root)


def _judged(planted: Planted, before: Ran, after: Ran) -> Outcome:
    if after.code == _PASSED:
        return Outcome(planted, Verdict.UNDETECTED, after.seconds, before.seconds)
    if after.code == _SOME_FAILED and after.failed:
        return Outcome(planted, Verdict.CAUGHT, after.seconds, before.seconds, after.failed)
    return _broken(planted, before, after, f"pytest ended with {after.code}, and names no test")


def _broken(planted: Planted, before: Ran, ran: Ran, why: str) -> Outcome:
    reason = "\n".join([why, *ran.output.splitlines()[-_TOLD_LINES:]])
    return Outcome(planted, Verdict.BROKEN, ran.seconds, before.seconds, reason=reason)


def _copy(folder: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    return folder


def run_suite(root: Path, suite: Sequence[str]) -> Ran:
    """Run tests of the project on the sources under `root`, up to the first that fails."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root / "src"), *_others()]),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(root / "hypothesis"),
        "SILTSTONE_SEED": "defects",  # the moments that a suite tries are those of the page
    }
    _require_copy(root, environment)
    options = ["-x", "-q", "--tb=short", "-rfE", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, f"--basetemp={root / 'tmp'}", *suite]
    began = time.monotonic()
    code, output = _output(command, environment)
    return Ran(code, time.monotonic() - began, output)


def _others() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _require_copy(root: Path, environment: Mapping[str, str]) -> None:
    """See that tests would import the copy: else every defect would go undetected."""
    command = [sys.executable, "-c", "import siltstone; print(siltstone.__file__)"]
    _, output = _output(command, environment)
    if not output.strip().startswith(str(root)):
        raise RuntimeError(f"siltstone is imported from {output.strip()}, not from {root}")


def _output(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int | None, str]:
    """Run a command in a session of its own; what a failed test left running ends with it.

    A file takes its output: a pipe would stay open for as long as such a process lives.
    """
    with tempfile.TemporaryFile("w+") as told:
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        handle = os.pidfd_open(child.pid)
        try:
            ended, _, _ = select.select([handle], [], [], SUITE_S_MAX)
        finally:
            os.close(handle)
            os.killpg(child.pid, signal.SIGKILL)  # not yet reaped, so the number is still its own
            code = child.wait()
        told.seek(0)
        return (code if ended else None), told.read()
