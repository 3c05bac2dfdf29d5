"""The command: `python -m proof.power --help`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from proof.defects.planted import ROOT
from proof.defects.planted import every as planted_defects
from proof.power import images, page
from proof.power.images import Image
from proof.power.page import Outcome
from proof.power.recording import STRACE, Recording, read, record
from proof.power.scenarios import AGAIN, BRIEF, SCENARIOS
from proof.power.trials import Bench, Finding, scratch

_FINDINGS_MAX = 5
_SAID_EACH_S = 5.0
_DEFAULT = [name for name in SCENARIOS if name != AGAIN and not name.startswith(f"{BRIEF} ")]


def main() -> int:
    """Try what the command line asks for; return 1 where a disk is not what was promised."""
    arguments = _parser().parse_args()
    if STRACE is None:
        sys.exit("strace is not installed: nothing can be recorded")
    unknown = set(arguments.scenario) - set(SCENARIOS)
    if unknown:
        sys.exit(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    if arguments.defect:
        return _defect(arguments)
    outcomes: list[Outcome] = []
    for name in arguments.scenario or _DEFAULT:
        for outcome in _scenario(name, arguments):
            outcomes.append(outcome)
            if arguments.report:  # at once: who is interrupted keeps what was found
                page.write(arguments.report, page.DATA, [outcome])
    failures = sum(outcome.failures for outcome in outcomes)
    _say(f"{sum(outcome.images for outcome in outcomes)} disks, {failures} not as promised")
    return 1 if failures else 0


def _scenario(name: str, arguments: argparse.Namespace, source: Path = ROOT) -> Iterator[Outcome]:
    """Record a scenario, or read what was recorded, and check disks of it."""
    with scratch() as folder:
        at = Path(folder)
        recorded = arguments.recorded or at / "recorded"
        began = time.monotonic()
        if arguments.recorded is None:
            recorded.mkdir()
            recording = record(name, recorded, source)
        else:
            recording = read(name, recorded)
        tried = _Tried(name, SCENARIOS[name].title, arguments, source)
        tried.check(recording, recorded, at, _chosen(recording, arguments))
        yield tried.outcome(time.monotonic() - began)
        if arguments.again and SCENARIOS[name].keeps_past:
            yield _again(name, recording, arguments, source)


def _again(name: str, recording: Recording, arguments: argparse.Namespace, source: Path) -> Outcome:
    """Recover some of the disks, each under strace, and check what a power cut leaves of that."""
    began = time.monotonic()
    tried = _Tried(f"{name} again", f"what a power cut left of `{name}`, opened", arguments, source)
    for image in images.sample(recording.events, arguments.seed, arguments.again):
        with scratch() as folder:
            recorded = Path(folder) / "recorded"
            recorded.mkdir()
            heir = record(AGAIN, recorded, source, before=image)
            count = max(1, arguments.images // arguments.again)
            chosen = images.sample(heir.events, arguments.seed, count)
            tried.check(heir, recorded, Path(folder), chosen)
    return tried.outcome(time.monotonic() - began)


class _Tried:
    """Counts what came of the recordings of one name."""

    def __init__(self, name: str, title: str, arguments: argparse.Namespace, source: Path) -> None:
        self._name, self._title, self._source = name, title, source
        self._arguments = arguments
        self._events = self._moments = self._disks = self._images = self._failures = 0

    def check(
        self, recording: Recording, recorded: Path, folder: Path, chosen: Iterable[Image]
    ) -> None:
        """Check disks of one recording."""
        space = images.space_of(recording.events, self._arguments.seed)
        _say(f"{self._name}: {space.moments} moments, {space.disks} disks to choose from")
        bench = Bench(recording, folder, self._arguments.jobs, self._source)
        try:
            progress = _Progress(self._name, time.monotonic())
            most = 1 if self._arguments.defect else _FINDINGS_MAX
            count, findings = bench.run(chosen, findings_max=most, on_done=progress.hear)
        finally:
            bench.end()
        _tell(recording.scenario, findings, self._arguments, recorded)
        self._events += len(recording.events)
        self._moments += space.moments
        self._disks += space.disks
        self._images += count
        self._failures += len(findings)

    def outcome(self, seconds: float) -> Outcome:
        """Return what came of all of them."""
        _say(f"{self._name}: {self._images} disks, {self._failures} not as promised")
        return Outcome(
            scenario=self._name,
            title=self._title,
            events=self._events,
            moments=self._moments,
            disks=self._disks,
            images=self._images,
            failures=self._failures,
            seed=self._arguments.seed,
            seconds=round(seconds, 1),
        )


def _chosen(recording: Recording, arguments: argparse.Namespace) -> Iterable[Image]:
    if arguments.op is not None:
        return [images.one(recording.events, arguments.seed, arguments.op, arguments.image)]
    if arguments.all:
        return images.every(recording.events, arguments.seed)
    return images.sample(recording.events, arguments.seed, arguments.images)


@dataclass(slots=True)
class _Progress:
    name: str
    said_s: float

    def hear(self, count: int, failures: int) -> None:
        now = time.monotonic()
        if now - self.said_s > _SAID_EACH_S:
            self.said_s = now
            _say(f"  {self.name}: {count} disks, {failures} not as promised")


def _tell(
    name: str, findings: list[Finding], arguments: argparse.Namespace, recorded: Path
) -> None:
    """Say what is wrong, and how to see it again: what was recorded is kept for that."""
    if not findings:
        return
    kept = recorded
    if arguments.recorded is None:
        kept = Path(tempfile.mkdtemp(prefix="siltstone-power-")) / name
        shutil.copytree(recorded, kept)
    for finding in findings:
        image = finding.image
        _say(
            f"FAILED {name}, {image.phase}, behind op {image.number} ({image.what}): {image.label}"
        )
        _say(f"  {finding.reason[:2000]}")
        command = ["python", "-m", "proof.power", "--scenario", name, "--recorded", str(kept)]
        command += ["--op", str(image.number), "--image", image.label]
        command += ["--defect", arguments.defect] if arguments.defect else []
        _say(f"  again: {shlex.join([*command, '--seed', str(arguments.seed)])}")


def _defect(arguments: argparse.Namespace) -> int:
    """Plant a defect in a copy of the source: one of the scenarios has to find a disk."""
    found = [each for each in planted_defects() if each.name == arguments.defect]
    if not found:
        sys.exit(f"no defect {arguments.defect}")
    with tempfile.TemporaryDirectory(prefix="siltstone-defect-") as folder:
        source = Path(folder)
        shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
        found[0].plant(source)
        for name in arguments.scenario or _DEFAULT:
            outcome = next(_scenario(name, arguments, source))
            if outcome.failures:
                _say(f"{arguments.defect}: caught in {name}, within {outcome.images} disks")
                if arguments.report:
                    page.write_defect(arguments.report, page.DATA, arguments.defect, outcome)
                return 0
    _say(f"{arguments.defect}: UNDETECTED")
    return 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m proof.power", description="cut the power of a real store wherever it matters"
    )
    parser.add_argument(
        "--scenario", action="append", default=[], help=f"of {', '.join(SCENARIOS)}; all if none"
    )
    parser.add_argument("--images", type=int, default=200, help="disks of each (default 200)")
    parser.add_argument("--all", action="store_true", help="every disk: hours")
    parser.add_argument(
        "--again", type=int, default=0, help="recover so many of them, and cut the power again"
    )
    parser.add_argument("--seed", type=int, default=1, help="which disks are chosen (default 1)")
    parser.add_argument("--jobs", type=int, default=2, help="checkers at once (default 2)")
    parser.add_argument("--recorded", type=Path, help="do not record, but read this folder")
    parser.add_argument("--op", type=int, help="with --image: the one disk behind so many ops")
    parser.add_argument("--image", help="the label of that disk")
    parser.add_argument("--defect", help="plant this defect first; some disk has to show it")
    parser.add_argument(
        "--report", type=Path, help="put what came of it into this page and proof/power-loss.json"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
