"""Kept: what runs found, in one JSON file; the page of the documentation is made of it.

    bench/results.json
    [{"kind", "command", "date", "commit", "seconds", "machine", "limits", ..}, ..]

    kind        what stands beside these    subjects
    workloads   `bench.results`             its workloads
    curves      `bench.curves.curve`        its curves
    spark       `bench.spark`               all of it

Of each subject the file has what the newest run found: a run takes the place of what older ones
found of its subjects. `--json` writes one run in the same shape.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("results.json")
KINDS = ("workloads", "curves", "spark")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one kind. `date` is UTC, in ISO; `commit` ends in + where files were changed."""

    kind: str
    command: str
    date: str
    commit: str
    seconds: float
    machine: dict[str, str]
    limits: dict[str, float]
    found: dict[str, Any]

    def __post_init__(self) -> None:
        assert self.kind in KINDS
        dt.datetime.fromisoformat(self.date)

    @property
    def subjects(self) -> set[str]:
        """What the run answers, those included of which it found nothing because they failed."""
        if self.kind == "workloads":
            return {*self.found["rounds"], *(each["workload"] for each in self.found["failures"])}
        return set(self.found) if self.kind == "curves" else {"spark"}

    def without(self, subjects: set[str]) -> Run:
        """Return what is left of the run; one of Spark is left whole or not at all."""
        if self.kind == "workloads":
            rounds = {name: v for name, v in self.found["rounds"].items() if name not in subjects}
            failed = [one for one in self.found["failures"] if one["workload"] not in subjects]
            return replace(self, found={**self.found, "rounds": rounds, "failures": failed})
        found = {name: value for name, value in self.found.items() if name not in subjects}
        return replace(self, found=found)


def now(
    kind: str,
    command: str,
    seconds: float,
    machine: dict[str, str],
    limits: dict[str, float],
    found: dict[str, Any],
) -> Run:
    """Return the run that ended just now, on this commit."""
    date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    short = _short(limits), _short(found)
    return Run(kind, command, date, commit(), round(seconds), machine, *short)


def keep(run: Run, file: Path = FILE) -> None:
    """Put a run into the file, in place of what older ones found of its subjects."""
    older = [each.without(run.subjects) if each.kind == run.kind else each for each in load(file)]
    left = [each for each in older if each.kind != run.kind or each.subjects - run.subjects]
    file.write_text("[\n" + ",\n".join(map(as_json, [*left, run])) + "\n]\n")


def load(file: Path = FILE) -> list[Run]:
    """Return what is kept, the oldest run first; nothing without a file."""
    told = json.loads(file.read_text()) if file.exists() else []
    return sorted(map(_run, told), key=lambda run: run.date)


def as_json(run: Run) -> str:
    """Return a run as the file has it, the values of a metric's rounds in one line."""
    told = asdict(run)
    found = told.pop("found")
    text = json.dumps({**told, **found}, indent=1)
    return re.sub(r"\[\s+([^\[\]{}\"]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)


def commit() -> str:
    """Return the commit of the sources, or "unknown" outside of git."""
    head = _git("rev-parse", "--short=10", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "bench/*.py")
    return f"{head}+" if head and changed else head or "unknown"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    try:
        done = subprocess.run(
            command, cwd=FILE.parents[1], stdout=subprocess.PIPE, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _run(told: dict[str, Any]) -> Run:
    head = {name: told.pop(name) for name in Run.__slots__ if name != "found"}
    return Run(**head, found=told)


def _short(value: Any) -> Any:
    """Return the same with 5 digits of each number: what is beyond them is noise."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, list) else value
