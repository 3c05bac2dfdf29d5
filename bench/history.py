"""History: what full runs found, one JSON file each; the page of the documentation is made of it.

    bench/history/<date>-<kind>.json
    {"format": 1, "kind", "date", "commit", "command", "seconds", "machine", "limits", "found"}

    kind        "found" is of
    workloads   `bench.results`: siltstone beside its peers
    curves      `bench.curves`: siltstone alone, with more and more of one thing
    profile     `bench.profile`: where the time of a commit goes
    spark       `bench.spark`
    measured    `bench.measured`: what another program of `bench` printed

A file is added, never changed; what a later run measured again counts instead. A "note" in "found"
is what a reader must know of the run.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("history")
KINDS = ("workloads", "curves", "profile", "spark", "measured")
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one kind. `date` is UTC, in ISO; `commit` ends in + where files were changed."""

    kind: str
    date: str
    commit: str
    command: str
    seconds: float
    machine: dict[str, str]
    limits: dict[str, float]
    found: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        assert self.kind in KINDS
        dt.datetime.fromisoformat(self.date)

    @property
    def day(self) -> str:
        return self.date[:16].replace("T", " ")


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
    return Run(kind, date, commit(), command, round(seconds), machine, _short(limits), found)


def add(run: Run, folder: Path = FOLDER) -> Path:
    """Write one more file; return its path.

    Raises:
        FileExistsError: There is a run of this kind and second.
    """
    folder.mkdir(parents=True, exist_ok=True)
    moment = dt.datetime.fromisoformat(run.date).strftime("%Y%m%dT%H%M%S")
    path = folder / f"{moment}-{run.kind}.json"
    text = json.dumps({"format": _FORMAT, **asdict(run), "found": _short(run.found)}, indent=1)
    with path.open("x") as file:
        file.write(text + "\n")
    return path


def load(folder: Path = FOLDER) -> list[Run]:
    """Return all runs, the oldest first."""
    return sorted(_read(folder), key=lambda run: run.date)


def newest(runs: list[Run], kind: str) -> Run | None:
    """Return the last run of a kind, None if there was none."""
    return next((run for run in reversed(runs) if run.kind == kind), None)


def commit() -> str:
    """Return the commit of the sources, or "unknown" outside of git."""
    head = _git("rev-parse", "--short=10", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "bench")
    return f"{head}+" if head and changed else head or "unknown"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    try:
        done = subprocess.run(
            command, cwd=FOLDER.parent, stdout=subprocess.PIPE, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _read(folder: Path) -> Iterator[Run]:
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        found = content.pop("format", None)
        if found != _FORMAT:
            message = f"{path.name} has format {found}, this is for format {_FORMAT}"
            raise ValueError(message)
        yield Run(**content)


def _short(value: Any) -> Any:
    """Return the same with 5 digits of each number: what is beyond them is noise."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, list) else value
