"""Trial: damages of one golden store, one after the other, and what a reader says of each."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path

from proof.corruption.damages import Damage, applied, drawn, kind_of
from tests.compat.golden import unpacked

ROOT = Path(__file__).parents[2]
ANSWER_S_MAX = 60.0
HINTS = {"LOCK", "wal/MARK"}
"""What they say changes no answer of an owner; a reader may go less far without them."""
IMMUTABLE = {"tables", "inventory", "manifest", "commits"}
"""Nothing writes into these files, so copies of a store share them."""


class Reader:
    """A process that opens damaged stores; a new one when one died or hung."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, path: Path, *, read_only: bool) -> dict[str, str]:
        """Return its answer; "it died" and "it hung" are errors, too."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "proof.corruption.reader"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        pipes = self._process.stdin, self._process.stdout
        assert pipes[0] is not None
        assert pipes[1] is not None
        pipes[0].write(json.dumps([str(path), read_only]).encode() + b"\n")
        pipes[0].flush()
        ready, _, _ = select.select([pipes[1]], [], [], ANSWER_S_MAX)
        line = pipes[1].readline() if ready else b""
        if line:
            return json.loads(line)
        self.close()
        return {"error": "it died" if ready else "it hung", "path": "", "text": ""}

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


class Trial:
    """One golden store, the answers of it whole, and the judgement of it damaged."""

    def __init__(self, state: str, folder: Path, reader: Reader) -> None:
        self.state, self._folder, self._reader = state, folder, reader
        self.source = unpacked(state, folder)
        self.judged: Counter[str] = Counter()
        self.problems: list[str] = []
        with self._copy() as copy:
            self._right = reader.ask(copy, read_only=True)
        assert "answers" in self._right, self._right

    def judge(self, damage: Damage, *, read_only: bool) -> str:
        """Return "right" or "named"; anything else is a problem, and returned as such."""
        data = applied(self.source, damage)
        with self._copy() as copy:
            (copy / damage.path).unlink()
            if data is not None:
                (copy / damage.path).write_bytes(data)
            said = self._reader.ask(copy, read_only=read_only)
            verdict = self._verdict(damage, said, copy)
        who = "reader" if read_only else "owner"
        if verdict == "wrong":
            self.problems.append(f"{self.state}: {damage}, {who}: {said}")
        self.judged[verdict] += 1
        return verdict

    def _verdict(self, damage: Damage, said: dict[str, str], copy: Path) -> str:
        if said == self._right:
            return "right"
        if said.get("error") != "CorruptionError":
            return "wrong"
        return "named" if _is_blamed(damage, Path(said["path"]), copy) else "wrong"

    @contextlib.contextmanager
    def _copy(self) -> Generator[Path]:
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            copy = Path(folder) / "s"
            shutil.copytree(self.source, copy, copy_function=self._copied)
            yield copy

    def _copied(self, source: str, target: str) -> None:
        if Path(source).relative_to(self.source).parts[0] in IMMUTABLE:
            os.link(source, target)
        else:
            shutil.copy2(source, target)


def _is_blamed(damage: Damage, named: Path, copy: Path) -> bool:
    """Say whether the error names the damaged file, or what shows that a whole file is not there.

    Without the newest record the log is of another one; without a FLOOR its folder is named.
    """
    if not named.is_relative_to(copy):
        return False
    relative, damaged = named.relative_to(copy), Path(damage.path)
    if relative in {damaged, damaged.parent}:
        return True
    if damage.kind in {"swapped", "older"} and kind_of(relative) == kind_of(damaged):
        return True  # each is whole: what does not fit is a pair of them
    if kind_of(damaged).startswith("manifest"):
        return relative.parts[0] in {"manifest", "wal"}
    return damaged.parts[0] == "wal" == relative.parts[0]


def run(
    trials: Iterable[Trial], seed: int, *, count_max: int, seconds_max: float = math.inf
) -> int:
    """Judge damages drawn from `seed`, of one store after the other; return how many.

    The owner looks as often as the reader; hints are judged by the owner alone.
    """
    rng, every, count = random.Random(seed), list(trials), 0
    end = time.monotonic() + seconds_max
    while count < count_max and time.monotonic() < end:
        for trial in every:
            damage = drawn(trial.source, rng)
            read_only = rng.random() < 0.5 and damage.path not in HINTS
            trial.judge(damage, read_only=read_only)
            count += 1
    return count
