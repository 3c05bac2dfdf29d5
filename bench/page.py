"""Page: `docs/benchmarks.md` and its plots, made of the history and of nothing else.

Of each workload, curve and program the newest run that asked for it counts, of other kinds the
newest run.
Why a target is missed stands in `reasons.toml`, by the target's name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import curves, history, measured, plots, summary, svg
from bench.history import Run
from bench.report import TARGET_HEADER, grid, judged, number
from bench.results import Results
from bench.targets import ALL as TARGETS
from bench.workloads import ALL as WORKLOADS

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
_REASONS = Path(__file__).with_name("reasons.toml")
_PLOTS = "benchmarks"
_RUNS_COMPARED = 6
_SYNCS = "fdatasync/s, preallocated file"

_HEAD = """\
`make bench` measures everything on this page again (in 52 minutes on this machine), and
writes the page anew: `python -m bench` (siltstone beside its peers), `python -m bench curves` (more
and more of one thing), `python -m bench profile` (where the time of a commit goes),
`python -m bench.spark`, then `python -m bench report`. Each adds what it found to `bench/history/`,
and the page is made of that alone. `siltstone bench` takes a minute, and tells users of their own
disk.
"""
_MEASURED = """\
Each program prints what it measures; `python -m bench record PROGRAM ...` keeps it for this page.
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """One target with its answer."""

    name: str
    bound: float
    value: float | None
    is_ceiling: bool
    spread: tuple[float, float] | None = None

    @property
    def is_met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value <= self.bound if self.is_ceiling else self.value >= self.bound


@dataclass(slots=True)
class Drawn:
    """The page as it grows: its parts, and the plots by their file name."""

    parts: list[str] = field(default_factory=list[str])
    plots: dict[str, str] = field(default_factory=dict[str, str])

    def say(self, *parts: str) -> None:
        self.parts += parts

    def plot(self, name: str, title: str, drawing: str | None) -> None:
        if drawing is not None:
            self.plots[f"{name}.svg"] = drawing
            self.parts.append(f"![{title}]({_PLOTS}/{name}.svg)\n")


def write(page: Path = PAGE, folder: Path = history.FOLDER) -> list[str]:
    """Write the page and its plots; return the missed targets of which no reason is known."""
    runs = history.load(folder)
    drawn = render(runs)
    (page.parent / _PLOTS).mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(drawn.parts))
    for path in (page.parent / _PLOTS).glob("*.svg"):
        if path.name not in drawn.plots:
            path.unlink()
    for name, content in drawn.plots.items():
        (page.parent / _PLOTS / name).write_text(content)
    return _unexplained(asked(runs))


def render(runs: list[Run]) -> Drawn:
    """Return the page of these runs."""
    drawn = Drawn(["# Benchmarks\n"])
    results, sources = together(runs)
    found = asked(runs)
    drawn.say("\n".join(summary.sentences(results, *_met(found))) + "\n", _HEAD)
    _targets(drawn, found)
    _machine(drawn, runs)
    _curves(drawn, runs)
    _profile(drawn, history.newest(runs, "profile"))
    _workloads(drawn, results, sources)
    _measured(drawn, runs)
    _spark(drawn, history.newest(runs, "spark"))
    _runs(drawn, runs)
    return drawn


def together(runs: list[Run]) -> tuple[Results, dict[str, Run]]:
    """Return the newest answer of each workload as one run, and which run gave it."""
    sources: dict[str, Run] = {}
    for run in runs:
        if run.kind == "workloads":
            sources |= dict.fromkeys(Results.of(run.found).asked(), run)
    last = history.newest(runs, "workloads")
    if last is None:
        return Results.of({"sizes": _NO_SIZES, "durable": [], "rounds": {}, "failures": []}), {}
    results = Results.of(last.found, last.command, last.limits)
    results.rounds, results.failures = {}, []
    for name, run in sources.items():
        each = Results.of(run.found)
        results.durable |= each.durable
        results.rounds |= {name: each.rounds[name]} if name in each.rounds else {}
        results.failures += [one for one in each.failures if one["workload"] == name]
    return results, sources


_NO_SIZES = {"scale": 1.0, "seconds": 0.0, "rounds": 0}


def asked(runs: list[Run]) -> list[Asked]:
    """Return all targets, with what the newest runs say of them."""
    results, _ = together(runs)
    found = [
        Asked(t.name, t.bound, t.value(results), t.is_ceiling, t.spread(results)) for t in TARGETS
    ]
    spark = history.newest(runs, "spark")
    return found + [Asked(**target) for target in (spark.found["targets"] if spark else [])]


def reasons() -> dict[str, str]:
    """Return why targets are missed, by their names."""
    listed = tomllib.loads(_REASONS.read_text())["miss"]
    return {name: each["reason"].strip() for each in listed for name in each["targets"]}


def _notes() -> dict[str, str]:
    """Return what a reader of a table must know, by the workload or "profile"."""
    return {
        name: text.strip() for name, text in tomllib.loads(_REASONS.read_text())["notes"].items()
    }


def _met(found: list[Asked]) -> tuple[int, int]:
    """Return how many targets are met, and of how many."""
    answers = [one.is_met for one in found if one.value is not None]
    return sum(answer is True for answer in answers), len(answers)


def _targets(drawn: Drawn, found: list[Asked]) -> None:
    met, measured = _met(found)
    drawn.say("## Targets\n", f"{met} of {measured} are met.\n")
    given = [(one.name, one.bound, one.value, one.is_ceiling) for one in found]
    drawn.plot("targets", "each target, and how far it is reached", plots.targets(given))
    rows = [[*judged(o.name, o.bound, o.value, o.is_met, o.is_ceiling), _spread(o)] for o in found]
    drawn.say(_table([*TARGET_HEADER, "lowest to highest round"], rows))
    if measured > met:
        drawn.say("### The misses, and what is known of them\n", "\n".join(_misses(found)) + "\n")


def _spread(one: Asked) -> str:
    return "" if one.spread is None else " to ".join(map(number, one.spread))


def _misses(found: list[Asked]) -> Iterator[str]:
    """Yield one line for each reason; targets of one reason stand together."""
    known, by_reason = reasons(), dict[str, list[Asked]]()
    for one in found:
        if one.is_met is False:
            reason = known.get(one.name, "Not looked into yet.")
            by_reason.setdefault(reason, []).append(one)
    for reason, ones in by_reason.items():
        names = "; ".join(
            f"**{o.name}**: {number(o.value or 0)} of {number(o.bound)}" for o in ones
        )
        yield f"- {names}. {reason}"


def _unexplained(found: list[Asked]) -> list[str]:
    return [one.name for one in found if one.is_met is False and one.name not in reasons()]


def _machine(drawn: Drawn, runs: list[Run]) -> None:
    last = history.newest(runs, "workloads")
    if last is None:
        return
    facts = {**last.machine, **{name: number(value) for name, value in last.limits.items()}}
    drawn.say("## The machine, and what it can do at best\n")
    drawn.say(_table(["machine", ""], [[name, value] for name, value in facts.items()]))


def _curves(drawn: Drawn, runs: list[Run]) -> None:
    last = history.newest(runs, "curves")
    if last is None:
        return
    drawn.say("## Curves: more and more of one thing\n", _source(last))
    for kind in curves.ALL:
        run = history.newest([each for each in runs if kind.name in each.found], "curves")
        if run is not None:
            found = run.found[kind.name]
            drawn.say(f"### {kind.title.capitalize()}\n", *([_source(run)] if run != last else []))
            if found["points"]:
                drawn.plot(kind.name, kind.title, plots.curve(kind, found, run.limits.get(_SYNCS)))
                drawn.say(_points(kind.x, found["points"]))
            lines = [f"- {int(x):,} left out: {why}" for x, why in found["left_out"].items()]
            lines += [f"- it failed: {found['error']}"] if "error" in found else []
            drawn.say(*(["\n".join(lines) + "\n"] if lines else []))


def _source(run: Run) -> str:
    return f"`{run.command}`, {run.day}, commit {run.commit}.\n"


def _note(run: Run) -> str:
    text = run.found.get("note", "")
    return f"The run of {run.day}: {text}" if text else ""


def _points(x: str, points: list[dict[str, Any]]) -> str:
    metrics = dict.fromkeys(name for point in points for name in point if name != "x")
    rows = [[m, *(number(p[m]) if m in p else "" for p in points)] for m in metrics]
    return _table([x, *(f"{point['x']:,}" for point in points)], rows)


def _profile(drawn: Drawn, run: Run | None) -> None:
    if run is None:
        return
    cases = run.found["cases"]
    names = dict.fromkeys(name for case in cases.values() for name in case["stages"])
    rows = [
        [name, *(number(case["stages"].get(name, 0.0)) for case in cases.values())]
        for name in names
    ]
    rows.append(["**all of it**", *(number(case["whole"]) for case in cases.values())])
    drawn.say("## Where the microseconds of a commit go\n")
    drawn.say(f"`{run.command}`, {run.day}, commit {run.commit}. {run.found['about']}\n")
    drawn.plot("profile", "the stages of a commit", plots.profile(run.found))
    drawn.say(_table(["us", *cases], rows), f"{_notes()['profile']}\n")


def _workloads(drawn: Drawn, results: Results, sources: dict[str, Run]) -> None:
    notes = _notes()
    drawn.say("## Beside its peers\n", "Every commit is synced, but for the peers marked *.\n")
    drawn.say(*(f"{text}\n" for text in dict.fromkeys(map(_note, sources.values())) if text))
    for workload in WORKLOADS:
        header, rows = grid(results, workload.name)
        if not rows:
            if workload.name in notes:
                title = f"### {workload.name}: {workload.title}\n"
                drawn.say(title, f"{notes[workload.name]}\n")
            continue
        run = sources[workload.name]
        drawn.say(f"### {workload.name}: {workload.title}\n")
        drawn.plot(workload.name, workload.title, plots.workload(workload, results))
        drawn.say(
            _table(header, rows), f"{run.day}, commit {run.commit}. {_note(run)}".rstrip() + "\n"
        )
        drawn.say(*([f"{notes[workload.name]}\n"] if workload.name in notes else []))
    if results.failures:
        lines = [f"- {f['workload']}, {f['peer']}: {f['error']}" for f in results.failures]
        drawn.say("### What failed\n", "\n".join(lines) + "\n")


def _measured(drawn: Drawn, runs: list[Run]) -> None:
    newest = {run.command: run for run in runs if run.kind == "measured"}
    if newest:
        drawn.say("## As tables grow, and what a call costs\n", _MEASURED)
    for program in measured.PROGRAMS:
        some = [run for run in newest.values() if run.found["program"] == program]
        drawn.say(*([f"### {measured.title(program)}\n"] if some else []))
        for run in sorted(some, key=lambda run: run.command):
            drawn.say(_source(run), "\n".join(["```text", *run.found["lines"], "```\n"]))


def _spark(drawn: Drawn, run: Run | None) -> None:
    if run is None:
        return
    rows = [
        [step, peer, svg.number(value)]
        for step, peers in run.found["medians"].items()
        if step != "TPC-H"
        for peer, value in peers.items()
    ]
    drawn.say("## Spark\n")
    about = f"{run.found['rows']:,} rows of 5 columns, local[2]; medians"
    drawn.say(f"`{run.command}`, {run.day}, commit {run.commit}: {about}.\n")
    drawn.say(_table(["seconds, if nothing else is said", "", ""], rows))
    if "TPC-H" in run.found:
        _tpch(drawn, run.found["TPC-H"])


def _tpch(drawn: Drawn, found: dict[str, Any]) -> None:
    """Show of each query how many times Parquet's seconds ours takes, clean and with fresh rows."""
    columns = found["ratios"]
    rows = [
        [name, *(svg.number(ratios[name]) for ratios in columns.values())]
        for name in next(iter(columns.values()))
    ]
    drawn.say(f"### TPC-H, scale {svg.number(found['scale'])}, on Spark\n")
    drawn.say(_table(["x Parquet's seconds", *columns], rows))


def _runs(drawn: Drawn, runs: list[Run]) -> None:
    rows = [
        [run.day, run.kind, run.commit, run.machine.get("cpu", ""), f"`{run.command}`"]
        for run in reversed(runs)
    ]
    drawn.say("## The history\n", _table(["UTC", "", "commit", "machine", ""], rows))
    compared = [run for run in runs if run.kind == "workloads"][-_RUNS_COMPARED:]
    answers = [Results.of(run.found) for run in compared]
    known = [(target.name, [target.value(answer) for answer in answers]) for target in TARGETS]
    seen = [
        [name, *("" if value is None else number(value) for value in values)]
        for name, values in known
        if len([value for value in values if value is not None]) > 1
    ]
    if seen:
        drawn.say(_table(["the same target, run by run", *(run.day for run in compared)], seen))


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
