"""Page: the table of all defects, for the documentation, and the same as JSON in `DATA`.

What was found out before is kept as long as the patch is the same, so one defect can be tried anew.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from proof.defects.planted import Planted
from proof.defects.trial import Outcome, Verdict

DATA = Path(__file__).parents[1] / "defects.json"

_HEAD = """\
# Planted defects

Each line is a small wrong change of the source (`proof/defects/<name>.patch`), planted in a copy
of it. The suite that claims to guard the [guarantees](guarantees.md) named passes without the
defect, and then has to fail with it. Written by `python -m proof.defects --report docs/defects.md`.

**{count} defects, {undetected} undetected.** Seconds are from the start of pytest to the first
test that failed, and what the whole suite takes without the defect; {cores} cores, Python {python}.
A patch that did not change is not tried again each time: the last column is the day on which it was
(none: before 2026-11-22, when days began to be noted).

| defect | what it makes of the store | breaks | suite | caught by | s | whole, s | tried |
| --- | --- | --- | --- | --- | ---: | ---: | --- |
"""


def known(data: Path, planted: Iterable[Planted]) -> dict[str, Outcome]:
    """Return what the JSON at `data` knows of defects, by name; those as they are."""
    told = {each["name"]: each for each in json.loads(data.read_text())} if data.exists() else {}
    found: dict[str, Outcome] = {}
    for each in planted:
        old = told.get(each.name)
        if old is not None and old["patch"] == each.digest:
            found[each.name] = Outcome(
                each,
                Verdict(old["verdict"]),
                old["seconds"],
                old["sound_s"],
                old["caught_by"],
                old["reason"],
                old.get("tried", ""),
            )
    return found


def write(path: Path, data: Path, outcomes: Iterable[Outcome]) -> None:
    """Write the page at `path` and the JSON at `data`, by the names of the defects."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.planted.name)
    path.write_text(written(ordered))
    data.write_text(as_json(ordered))


def as_json(outcomes: Iterable[Outcome]) -> str:
    """Return outcomes as JSON."""
    return json.dumps([outcome.to_dict() for outcome in outcomes], indent=1) + "\n"


def written(outcomes: Sequence[Outcome]) -> str:
    """Return the page."""
    head = _HEAD.format(
        count=len(outcomes),
        undetected=sum(outcome.verdict is not Verdict.CAUGHT for outcome in outcomes),
        cores=os.cpu_count(),
        python=platform.python_version(),
    )
    return head + "".join(_line(outcome) for outcome in outcomes)


def _line(outcome: Outcome) -> str:
    planted = outcome.planted
    test = outcome.caught_by.rpartition("::")[2].partition("[")[0]
    cells = [
        f"`{planted.name}`",
        planted.title,
        ", ".join(map(str, planted.breaks)),
        " ".join(f"`{part}`" for part in planted.suite),
        f"`{test}`" if test else f"**{outcome.verdict.value}**",
        f"{outcome.seconds:.1f}",
        f"{outcome.sound_s:.1f}",
        outcome.tried or "-",
    ]
    return f"| {' | '.join(cells)} |\n"
