"""Merge child: a merge (or an optimize) in a separate process, next to its owner, at nice 19.

In a thread of the owner a merge takes 0.55-0.94 of the commits and stalls them up to 121 ms; in a
child at nice 19 they keep 0.9 and the longest stall is 5 ms (measured). The child is started by its
command line, never by multiprocessing, which would run the user's main again.

When writers wait for it, a low priority hurts: on a busy machine it would get a hundredth of a
processor. A child that starts then has the owner's niceness, and a running child is raised to it.
If the system refuses (without CAP_SYS_NICE or RLIMIT_NICE no process can become less nice), the
child is ended and started again, unless it gets its share anyway: its work is lost, but it would
not end. A child that nothing waits for needs a slot (`slots.py`), one that is waited for has none.

It never outlives its owner (`lifeline.py`). It imports nothing from the working directory of the
owner, which may be anybody's, and keeps no directory from being unmounted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO

from siltstone.errors import UnavailableError
from siltstone.maintenance.merge.lifeline import VARIABLE, Lifeline
from siltstone.maintenance.merge.slots import Slot, take_slot
from siltstone.telemetry.works import WorkTimes

TIMEOUT_S = 3600
NICENESS = 19
SHARE_MIN = 0.5
_LOOK_S = 0.02
_NEUTRAL = "/"
_MESSAGE_BYTES_MAX = 4096
_NO_CACHE = {"SILTSTONE_CACHE_BYTES_MAX": "0"}  # it would take the time of an end
# glibc raises its thresholds with what is freed, and then keeps hundreds of MB of a scan's batches.
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_TRIM_THRESHOLD_": "1048576"}


class MergeChild:
    """Starts merges, one at a time; `is_running` becomes False when the last one has ended.

    Args:
        root: The store.
        kind: The command: "merge" or "optimize".
        slot: Returns the right to run a child that nothing waits for; None: there is none now.
        settings: The variables of the environment that it has besides; one that is waited for has
            no cache for rows.
        work: What counts the children that succeed, when they are reaped: within a second or so.
    """

    def __init__(
        self,
        root: Path,
        *,
        kind: str = "merge",
        python: str = sys.executable,
        timeout_s: float = TIMEOUT_S,
        slot: Callable[[], Slot | None] = take_slot,
        settings: Mapping[str, str] = MappingProxyType({}),
        work: WorkTimes | None = None,
    ) -> None:
        self._settings, self._work = settings, work or WorkTimes(kind)
        self._root, self._python, self._timeout_s = root, python, timeout_s
        self._kind, self._slot = kind, slot
        self._lifeline: Lifeline | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._deadline = self._started_at = 0.0
        self._is_waited_for = self._is_nice = False
        self.failure: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether a child is running; one that exceeds its time is ended."""
        if self._process is None or self._process.poll() is not None:
            return False
        if time.monotonic() > self._deadline:
            self._end(self._process)
            return False
        return True

    def start(self) -> bool:
        """Start one over all tables unless one is running; False: there is no slot for it now.

        Raises:
            UnavailableError: It cannot be started, or the last one failed.
        """
        if self.is_running:
            return True
        self.reap()
        slot = Slot() if self._is_waited_for else self._slot()
        if slot is None:
            return False
        self._is_nice = not self._is_waited_for
        command = _command(self._python, self._root, self._kind, is_nice=self._is_nice)
        self._start(command, slot, self._settings)
        return True

    def run(self, is_over: Callable[[], bool], *more: str) -> bool:
        """Run one that is waited for; False: it `is_over` before it had ended, so it was killed.

        Args:
            is_over: Asked all the time.
            more: Further arguments of its command.

        Raises:
            UnavailableError: It cannot be started, or failed.
        """
        self.stop()
        command = _command(self._python, self._root, self._kind, is_nice=False)
        self._start([*command, *more], Slot(), _NO_CACHE)
        while not is_over():
            if self._has_ended_within(_LOOK_S):
                self.reap()
                return True
        self.stop()
        return False

    def _has_ended_within(self, seconds: float) -> bool:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            return True
        return False

    def _start(self, command: Sequence[str], slot: Slot, settings: Mapping[str, str]) -> None:
        # A file, not a pipe: no process reads while the child runs, and a full pipe would stop it.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it was read
        self._started_at = time.monotonic()
        self._deadline = self._started_at + self._timeout_s
        try:
            self._lifeline = Lifeline()
            self._process = subprocess.Popen(
                command,
                stdin=self._lifeline.child_end,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                cwd=_NEUTRAL,
                env={**_environment(), **settings},
                pass_fds=slot.descriptors,
            )
        except OSError as error:
            self._let_go()
            raise UnavailableError(f"cannot start a child to {self._kind}: {error}") from error
        finally:
            slot.release()
            if self._lifeline is not None:
                self._lifeline.given()

    def _let_go(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            lifeline.release()

    def hurry(self, is_waited_for: bool) -> None:
        """Set whether writers wait for its work, until the next call.

        Raises:
            UnavailableError: The child cannot be started again.
        """
        self._is_waited_for = is_waited_for
        process = self._process
        if not (is_waited_for and self._is_nice and self.is_running and process is not None):
            return
        if _raise(process.pid):
            self._is_nice = False
        elif _processor_s(process.pid) < SHARE_MIN * (time.monotonic() - self._started_at):
            self.stop()
            self.start()

    def reap(self) -> None:
        """Say how the last child failed, if it did; `failure` has it if it ended by itself.

        Raises:
            UnavailableError: It failed; its last line says why, or how it ended.
        """
        process, self._process, self.failure = self._process, None, None
        if process is None:
            return
        self._let_go()
        message, status = self._last_line(), process.wait()
        if status > 0:
            self.failure = message or f"exit code {status}"
        if status != 0:
            ended = f"killed by signal {-status}" if status < 0 else f"exit code {status}"
            raise UnavailableError(f"the {self._kind} child failed: {message or ended}")
        self._work.done(time.monotonic() - self._started_at, f"process {process.pid} has ended")

    def _last_line(self) -> str:
        errors, self._errors = self._errors, None
        if errors is None:
            return ""
        with errors:
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - _MESSAGE_BYTES_MAX))
            lines = errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def stop(self) -> None:
        """End a running child: a merge that is not published is inert."""
        process, self._process = self._process, None
        if process is not None:
            self._end(process)
        self._let_go()
        self._last_line()

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        """Kill it: a child that is stopped by a signal would never hear a SIGTERM."""
        process.kill()
        process.wait()


def _raise(pid: int) -> bool:
    """Give all threads of a process our own niceness; False where the system refuses."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names, not paths
            os.setpriority(os.PRIO_PROCESS, int(thread), os.nice(0))
    except OSError:
        return False
    return True


def _processor_s(pid: int) -> float:
    """Return the seconds of processor time that a process had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _command(python: str, root: Path, kind: str, *, is_nice: bool) -> list[str]:
    # -P: the working directory is none of the places that modules come from.
    work = [python, "-P", "-m", "siltstone", kind, "--db", str(root), "--quiet"]
    if kind == "optimize":
        work.append("--by-tiers")  # it comes often
    return [*(["nice", "-n", str(NICENESS)] if is_nice else []), *work]


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SILTSTONE_")}
    if kept.get("PYTHONPATH"):  # its relative parts would be others in another directory
        parts = kept["PYTHONPATH"].split(os.pathsep)
        kept["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in parts)  # noqa: PTH100 - links stay
    return {**_ALLOCATOR, **kept, VARIABLE: "1"}
