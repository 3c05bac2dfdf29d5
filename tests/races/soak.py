"""Soak: a bank under everything at once, and kills at random. Any violation names its seed.

    python -m tests.races.soak --seconds 600 [--seed 7] [--folder DIR]

An owner with four writers, two readers, two optimizers, a merger, a vacuum: each a process of its
own (`soak_role`) that checks what it sees. One of them is killed, or stopped for a while, again and
again; an owner's death is followed by the next owner, which checks what the last one acknowledged.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import siltstone as st
from tests.races import soak_role

REPOSITORY = Path(__file__).parents[2]
CREW = ("owner", "reader", "reader", "optimizer", "optimizer", "merger", "vacuum")
START_S = 60.0


@dataclass
class Member:
    """One process of the crew."""

    role: str
    process: subprocess.Popen[bytes]
    errors: Path
    is_up: bool = False


class SoakError(AssertionError):
    """A process found something wrong, or failed."""


class Soak:
    """The crew over one store."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed, self._chance = seed, random.Random(seed)
        self._folder, self.root = folder, folder / "bank"
        self.acknowledged = folder / "acknowledged"
        self._started = self.kills = self.stops = 0
        with st.connect(self.root, **soak_role.OPTIONS) as db:
            soak_role.create(db)
        self._crew: list[Member] = []

    def run(self, seconds: float) -> None:
        """Soak, then check everything."""
        deadline = time.monotonic() + seconds
        try:
            self._crew = [self._start(role) for role in CREW]
            while time.monotonic() < deadline:
                self._wait(min(self._chance.uniform(0.3, 2.0), deadline - time.monotonic()))
                self._hit(self._chance.randrange(len(self._crew)))
            for member in self._crew:
                self._end(member)
        finally:
            for member in self._crew:
                member.process.kill()
                member.process.communicate()
        self._check()

    def _start(self, role: str) -> Member:
        self._started += 1
        errors = self._folder / f"{self._started}-{role}.err"
        arguments = [role, str(self.root), str(self.acknowledged), f"{self.seed + self._started}"]
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.races.soak_role", *arguments],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        return Member(role, process, errors)

    def _wait(self, seconds: float) -> None:
        """Let them work; raise as soon as one of them ends by itself."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for member in self._crew:
                if member.process.poll() is not None:
                    raise self._failure(member)
            time.sleep(0.05)

    def _hit(self, index: int) -> None:
        """Kill a process and start the next one, or stop it for a while."""
        member = self._crew[index]
        _wait_until_up(member)
        if self._chance.random() < 0.3:
            self.stops += 1
            member.process.send_signal(signal.SIGSTOP)
            self._wait(self._chance.uniform(0.1, 1.5))
            member.process.send_signal(signal.SIGCONT)
            return
        self.kills += 1
        member.process.kill()
        member.process.communicate()
        self._crew[index] = self._start(member.role)

    def _end(self, member: Member) -> None:
        _wait_until_up(member)
        member.process.communicate(timeout=START_S)
        if member.process.returncode:
            raise self._failure(member)

    def _failure(self, member: Member) -> SoakError:
        again = f"python -m tests.races.soak --seed {self.seed}"
        return SoakError(f"the {member.role} failed ({again}):\n{member.errors.read_text()}")

    def _check(self) -> None:
        for is_settled in (False, True):
            with st.connect(self.root, **soak_role.OPTIONS) as db:
                if is_settled:
                    db.checkpoint()
                    db.merge()
                    db.optimize()
                    db.vacuum(dry_run=False, grace_s=0)
                with db.snapshot() as snapshot:
                    last = soak_role.check(snapshot)
                    soak_role.check_acknowledged(last, self.acknowledged, snapshot.seq)
                found = db.verify(deep=True)
                if not found.is_sound:
                    raise SoakError(f"seed {self.seed}: {found}")

    @property
    def commits(self) -> int:
        """How many were acknowledged."""
        return len(self.acknowledged.read_text().splitlines())

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.commits} commits acknowledged,"
            f" {self.kills} kills, {self.stops} stops"
        )


def _wait_until_up(member: Member) -> None:
    """Wait until it has begun, or has ended."""
    if not member.is_up:
        stdout: IO[bytes] | None = member.process.stdout
        assert stdout is not None
        stdout.readline()
        member.is_up = True


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.races.soak")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)  # noqa: T201
    folder = given.folder or Path(tempfile.mkdtemp(prefix="siltstone-soak-"))
    soak = Soak(folder, given.seed)
    soak.run(given.seconds)
    print(soak)  # noqa: T201


if __name__ == "__main__":
    main()
