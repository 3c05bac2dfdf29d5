"""Crew: the processes of a soak, killed or stopped at random, and watched for what they hold."""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import siltstone as st
from proof.soak.post import Post, environment_of
from siltstone.failpoints import CATALOG

REPOSITORY = Path(__file__).parents[2]
FULL = (
    "owner",
    "watcher",
    "reader",
    "joined",
    "remote",
    "stock",
    "guest",
    "optimizer",
    "optimizer",
    "merger",
    "vacuum",
    "indexer",
    "backup",
)
END_S = 90.0
EXTRA_S = 60.0
FILES_MAX = 512
MEMORY_MAX = 2 << 30
ALARMS = (
    "Traceback (most recent call last)",
    "Exception ignored in",
    "panicked at",
    "background work stops",
    "is damaged",
)
"""What no process of a sound store says, not even one that carries on or is killed."""
FORESEEN = frozenset(
    each.__name__ for each in (st.BusyError, st.ConflictError, st.UnavailableError, st.ClosedError)
)
"""The kinds of errors that a warning may name: races and kills bring them."""
STOP_SHARE, EARLY_SHARE, FAILPOINT_SHARE = 0.3, 0.15, 0.25
_KINDS = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")
_OF_LANCE = re.compile(r"\[\S+Z (?:WARN|ERROR) +(\S+)\] ")
"""How a line begins that Lance itself logs: a stock client whose server is killed says much."""
_VARYING = re.compile(r"\b[0-9a-f-]*[0-9][0-9a-f-]*\b")
_OPERATIONS = {
    "optimizer": ("optimize",),
    "merger": ("merge",),
    "vacuum": ("vacuum",),
    "indexer": ("index",),
    "backup": ("backup", "restore"),
    "owner": ("flush", "commit", "publish", "attach", "ddl"),
}


@dataclass
class Member:
    """One process of the crew; `point` is the failpoint where it dies by itself, if any."""

    post: Post
    process: subprocess.Popen[bytes]
    errors: Path
    point: str | None
    is_up: bool = False

    @property
    def has_died_as_told(self) -> bool:
        """Whether it died at its failpoint."""
        return self.point is not None and self.process.returncode == -signal.SIGKILL

    def held(self) -> tuple[int, int]:
        """Return how many files it has open, and its bytes in memory."""
        try:
            files = len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208 - counted
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except OSError:  # it ends
            return 0, 0
        return files, pages * os.sysconf("SC_PAGE_SIZE")

    def said(self) -> Counter[str]:
        """Return the warnings it wrote to its standard error, without what varies in them.

        Raises:
            MemberError: There is an alarm among them, or an error that nobody foresaw.
        """
        told = self.errors.read_text(errors="replace")
        lines = told.splitlines()
        own = [line for line in lines if line and not _OF_LANCE.match(line)]
        kinds = {kind for line in own for kind in _KINDS.findall(line)}
        if kinds - FORESEEN or any(alarm in told for alarm in ALARMS):
            raise _failure(self)
        found = Counter(_VARYING.sub("#", line.partition(":")[0].strip()) for line in own)
        found.update(match[1] for line in lines if (match := _OF_LANCE.match(line)))
        return found


class MemberError(AssertionError):
    """A process found something wrong, or failed."""


class Crew:
    """One round's processes."""

    def __init__(self, first: Post, roles: Sequence[str], chance: random.Random) -> None:
        """`first`: the post of the round; its number is one below the first process's."""
        self._post, self._chance = first, chance
        self.kills, self.stops, self.deaths = Counter[str](), 0, Counter[str]()
        self.files, self.memory = Counter[str](), Counter[str]()
        self.said = Counter[str]()
        self._members: list[Member] = []
        try:
            for role in roles:
                self._members.append(self._start(role))
        except BaseException:
            self.close()
            raise

    @property
    def number(self) -> int:
        """The number of the process that was started last."""
        return self._post.number

    def run(self, seconds: float, is_enough: Callable[[], bool]) -> None:
        """Let them work, and kill or stop one after the other.

        Args:
            seconds: For so long once all have begun.
            is_enough: And until this is so, but not for more than `EXTRA_S`.
        """
        for member in [*self._members]:
            _is_up(member)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 or (left > -EXTRA_S and not is_enough()):
            self._wait(self._chance.uniform(0.3, min(2.0, max(left, 0.4))))
            self._hit(self._chance.randrange(len(self._members)))

    def end(self) -> None:
        """Let them end by themselves."""
        for member in self._members:
            _is_up(member)
            assert member.process.stdin is not None
            member.process.stdin.close()
            member.process.stdin = None
        for member in self._members:
            _await_end(member)
            if member.process.returncode and not member.has_died_as_told:
                raise _failure(member)
            self.said += member.said()

    def close(self) -> None:
        """Let nobody live."""
        for member in self._members:
            member.process.kill()
            member.process.communicate()

    def _start(self, role: str) -> Member:
        self._post = replace(self._post, role=role, number=self._post.number + 1)
        errors = Path(self._post.folder) / f"{self._post.number}-{role}.err"
        point = self._point_of(role)
        order = f"{point}=kill@{self._chance.randint(1, 12)}" if point else None
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "proof.soak.role", self._post.told()],
                cwd=REPOSITORY,
                env={**os.environ, **environment_of(order)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,  # Ctrl-C is ours; they end with our pipe
            )
        return Member(self._post, process, errors, point)

    def _point_of(self, role: str) -> str | None:
        """Return where a process is to die by itself; most are not told to."""
        operations = _OPERATIONS.get(role, ())
        labels = [point.label for point in CATALOG if point.label.split(".")[0] in operations]
        is_told = self._chance.random() < FAILPOINT_SHARE
        return self._chance.choice(labels) if labels and is_told else None

    def _wait(self, seconds: float) -> None:
        """Let them work; raise as soon as one of them ends that was not told to."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for place, member in enumerate(self._members):
                if member.process.poll() is not None:
                    self._mourn(place, member)
            time.sleep(0.05)
        for member in self._members:
            self._look_at(member)

    def _mourn(self, place: int, member: Member) -> None:
        if not member.has_died_as_told:
            raise _failure(member)
        self.deaths[str(member.point)] += 1
        self._replace(place, member)

    def _replace(self, place: int, member: Member) -> None:
        """Bury one that is dead or dies now, hear what it said, and start the next one."""
        member.process.communicate()
        self.said += member.said()
        self._members[place] = self._start(member.post.role)

    def _look_at(self, member: Member) -> None:
        files, memory = member.held()
        role = member.post.role
        self.files[role] = max(self.files[role], files)
        self.memory[role] = max(self.memory[role], memory)
        if files > FILES_MAX or memory > MEMORY_MAX:
            text = f"the {role} has {files} files open and {memory >> 20} MiB in memory"
            raise MemberError(text)

    def _hit(self, place: int) -> None:
        """Kill a process and start the next one, or stop it for a while; not the watcher.

        Who has not begun yet is left alone, mostly.
        """
        member = self._members[place]
        is_early = self._chance.random() < EARLY_SHARE
        if not is_early and not _is_up(member, wait_s=0):
            return
        if self._chance.random() < STOP_SHARE:
            self.stops += 1
            member.process.send_signal(signal.SIGSTOP)
            self._wait(self._chance.uniform(0.1, 1.5))
            member.process.send_signal(signal.SIGCONT)
        elif member.post.role != "watcher":
            if member.process.poll() is not None:
                self._mourn(place, member)
                return
            self.kills[member.post.role] += 1
            member.process.kill()
            self._replace(place, member)


def _await_end(member: Member) -> None:
    try:
        member.process.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        member.process.send_signal(signal.SIGUSR1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            member.process.communicate(timeout=1)  # it says where it is, and goes on
        raise _failure(member) from None


def _failure(member: Member) -> MemberError:
    told = member.errors.read_text()
    return MemberError(f"the {member.post.role} ended ({member.process.returncode}):\n{told}")


def _is_up(member: Member, wait_s: float | None = None) -> bool:
    """Say whether it has begun; by default wait until it has, or has ended."""
    if not member.is_up:
        stdout: IO[bytes] | None = member.process.stdout
        assert stdout is not None
        found, _, _ = select.select([stdout], [], [], wait_s)
        member.is_up = bool(found and stdout.readline())
    return member.is_up
