"""Page: what came of the scenarios and the planted defects; as JSON in `DATA`, to be kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "power-loss.json"

_HEAD = """\
# Power loss

Real processes, with real Lance beneath, lived each scenario under `strace`, which wrote down every
call that changes a file. From that follows every disk that a power cut behind any of these calls
may leave, when each write and each name that was not synced is kept, lost, torn or zeroed by
itself. Some of these disks were laid out, and a store opened on each: it shows all that was
acknowledged, nothing that was not begun, every commit whole, older seqs and tags as they were, and
it goes on through commits and another start; a third of them also through a checkpoint and a merge,
a sixth through an optimize and a vacuum, with no byte damaged behind it: guarantees 1 to 4, 8, 11
and 13 of [the list](guarantees.md). Written by
`python -m proof.power --images N --report docs/power-loss.md`.

**{images} different disks, {failures} not as promised.**

| scenario | what it is | calls | moments | possible disks | checked | not as promised | s |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""
_DEFECTS = """
## Would it notice?

[Planted defects](defects.md) about durability, each recorded and checked in the same way with
`python -m proof.power --defect NAME`:

| defect | scenario | disks checked until one was wrong |
| --- | --- | ---: |
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one scenario: `disks` may be left, `images` different ones were checked."""

    scenario: str
    title: str
    events: int
    moments: int
    disks: int
    images: int
    failures: int
    seed: int
    seconds: float


def write(path: Path, data: Path, outcomes: Iterable[Outcome]) -> None:
    """Put outcomes into the page at `path` and the JSON at `data`; other scenarios stay."""
    told = known(data)
    told["scenarios"] |= {each.scenario: asdict(each) for each in outcomes}
    _write(path, data, told)


def write_defect(path: Path, data: Path, defect: str, outcome: Outcome) -> None:
    """Put what found a defect into the page at `path` and the JSON at `data`."""
    told = known(data)
    told["defects"][defect] = asdict(outcome)
    _write(path, data, told)


def known(data: Path) -> dict[str, dict[str, Any]]:
    """Return what the JSON at `data` has: `scenarios` and `defects`, by name."""
    return json.loads(data.read_text()) if data.exists() else {"scenarios": {}, "defects": {}}


def _write(path: Path, data: Path, told: dict[str, dict[str, Any]]) -> None:
    data.write_text(json.dumps(told, indent=1) + "\n")
    path.write_text(written(told))


def written(told: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    outcomes = [Outcome(**each) for each in told["scenarios"].values()]
    head = _HEAD.format(
        images=f"{sum(each.images for each in outcomes):,}",
        failures=sum(each.failures for each in outcomes),
    )
    lines = [
        f"| `{each.scenario}` | {each.title} | {each.events:,} | {each.moments:,} |"
        f" {each.disks:,} | {each.images:,} | {each.failures} | {each.seconds:.0f} |\n"
        for each in outcomes
    ]
    found = [
        f"| `{name}` | `{each['scenario']}` | {each['images']} |\n"
        for name, each in sorted(told["defects"].items())
    ]
    return head + "".join(lines) + (_DEFECTS + "".join(found) if found else "")
