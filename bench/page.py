"""Page: `docs/benchmarks.md`, made of `results.json` and `reasons.toml` and of nothing else.

Five sentences and two drawings. Behind it, in `docs/benchmarks/targets.md`, a table of all targets
and one of those that are missed. Why stands in `reasons.toml`, by the target's name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from bench import kept
from bench.kept import Run
from bench.report import judged, number
from bench.results import Results
from bench.targets import ALL as TARGETS
from bench.targets import Answer
from bench.workload import Sizes

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BESIDE = "benchmarks/beside.svg"
CURVES = "benchmarks/curves.svg"
BEHIND = "benchmarks/targets.md"
_REASONS = Path(__file__).with_name("reasons.toml")
_PEERS = {"sqlite": "SQLite", "duckdb": "DuckDB", "lance": "Lance"}
_FOOT = (
    "Each bar is a median. A store with a star may lose commits that it acknowledged when the power"
    " fails; the others sync each commit."
)
_CURVES = "Rates over more and more threads, tables, rows, snapshots and publishes"
_INTRODUCED = (
    "What siltstone set itself, and what was measured, as medians; `x` is a ratio, taken within a"
    " round. Back to the [summary](../benchmarks.md)."
)
_TARGETS = ["target", "wanted", "measured", "result", "lowest to highest", "command", "on, commit"]


def write(page: Path = PAGE, file: Path = kept.FILE) -> list[str]:
    """Write both pages and the drawings; return the missed targets of which no reason is known."""
    from bench import plots  # matplotlib is of the group `dev`

    runs = kept.load(file)
    page.write_text(text(runs))
    plots.compare(together(runs), page.parent / BESIDE)
    plots.draw(runs, page.parent / CURVES)
    (page.parent / BEHIND).write_text(targets(runs))
    return [one.name for one in answers(runs) if one.is_met is False and one.name not in reasons()]


def text(runs: list[Run]) -> str:
    """Return the page of these runs."""
    sentences = _sentences(together(runs), answers(runs), runs)
    parts = ["# Benchmarks", "\n".join(f"- {each}" for each in sentences)]
    parts += [f"[All targets, and what is known of each that is missed]({BEHIND})"]
    parts += ["## Beside other stores", f"![{_beside(together(runs))}]({BESIDE})", _FOOT]
    if grown := [run for run in runs if run.kind == "curves"]:
        told = "; ".join(f"`{run.command}`, {run.date[:10]}, {run.commit}" for run in grown)
        parts += ["## More and more of one thing", f"![{_CURVES}]({CURVES})"]
        parts += [f"Measured by {told}."]
    return "\n\n".join(parts) + "\n"


def targets(runs: list[Run]) -> str:
    """Return the page behind it."""
    found, sources = answers(runs), {name: run for run in runs for name in run.subjects}
    lines = [[*judged(one), _spread(one), *_source(one, sources)] for one in found]
    parts = ["# Targets", _INTRODUCED, _table(_TARGETS, lines)]
    if missed := [one for one in found if one.is_met is False]:
        parts += ["## Misses", _table(["missed", "what is known of it"], list(_misses(missed)))]
    return "\n\n".join(parts) + "\n"


def together(runs: list[Run]) -> Results:
    """Return what is kept of all workloads as one run."""
    results = Results("", Sizes(1.0, 0.0, 0), {}, {})
    for run in runs:
        if run.kind == "workloads":
            one = Results.of(run.found)
            results.rounds |= one.rounds
            results.durable |= one.durable
            results.failures += one.failures
    return results


def answers(runs: list[Run]) -> list[Answer]:
    """Return all targets, with what is kept of them."""
    results = together(runs)
    spark = [target for run in runs if run.kind == "spark" for target in run.found["targets"]]
    return [target.answer(results) for target in TARGETS] + [Answer(**each) for each in spark]


def reasons() -> dict[str, str]:
    """Return why targets are missed, by their names."""
    listed = tomllib.loads(_REASONS.read_text())["miss"]
    return {name: each["reason"].strip() for each in listed for name in each["targets"]}


def _sentences(results: Results, found: list[Answer], runs: list[Run]) -> Iterator[str]:
    """Yield the five sentences; what was not measured is called so."""

    def said(workload: str, metric: str, *peers: str) -> str:
        beside = (f"{_PEERS[peer]} {_value(results, workload, metric, peer)}" for peer in peers)
        return f"{_value(results, workload, metric)} ({', '.join(beside)})"

    yield (
        f"From one thread siltstone commits {said('W1', '1 threads', 'sqlite', 'duckdb')} durable"
        " rows per second, one by one, and from eight threads"
        f" {said('W1', '8 threads', 'sqlite', 'duckdb')}."
    )
    yield (
        f"Transfers of four statements on two tables: {said('W3', '1 threads', 'sqlite')} per"
        f" second from one thread, {said('W3', '8 threads', 'sqlite')} from eight."
    )
    yield (
        f"Batches of 100,000 rows are upserted at {said('W2', '100,000 rows', 'sqlite', 'duckdb')}"
        f" rows per second, and a recent row is read {said('W4', 'recent', 'sqlite')} times per"
        " second by its key."
    )
    yield (
        f"A scan of all columns gives {said('W5', 'clean all columns', 'lance', 'duckdb')} rows per"
        f" second, of few columns {said('W5', 'clean narrow', 'lance', 'duckdb')}."
    )
    judgements = [one.is_met for one in found if one.value is not None]
    yield (
        f"Of the {len(judgements)} targets that siltstone set itself {judgements.count(True)} are"
        f" met{_machine(runs)}: `make bench` measures all of them again, in about an hour,"
        " `python -m bench report` writes this page, and `siltstone bench` measures your own disk"
        " in a minute."
    )


def _beside(results: Results) -> str:
    """Return the drawing in words, for those who do not see it: where siltstone stands in each."""
    from bench import plots  # matplotlib is of the group `dev`

    told: list[str] = []
    for title, (workload, metric) in plots.BESIDE.items():
        values = [
            results.value(workload, metric, peer) for peer in results.rounds.get(workload, {})
        ]
        known = sorted((value for value in values if value is not None), reverse=True)
        ours = results.value(workload, metric)
        if ours is not None:
            told.append(f"{title}: {known.index(ours) + 1} of {len(known)}")
    return f"Where siltstone stands, of so many stores. {'; '.join(told)}"


def _machine(runs: list[Run]) -> str:
    told = runs[-1].machine if runs else {}
    return f", on {told['cores']} cores ({told['cpu']}, {told['file system']})" if told else ""


def _value(results: Results, workload: str, metric: str, *peer: str) -> str:
    found = results.value(workload, metric, *peer)
    return "not measured" if found is None else number(found)


def _spread(one: Answer) -> str:
    return "" if one.spread is None else " to ".join(map(number, one.spread))


def _source(one: Answer, sources: dict[str, Run]) -> list[str]:
    """Return by which command a target was answered, and when and on which commit."""
    run = sources.get(one.subject if one.subject in sources else one.subject.lower())
    return ["", ""] if run is None else [f"`{run.command}`", f"{run.date[:10]}, {run.commit}"]


def _misses(missed: list[Answer]) -> Iterator[list[str]]:
    """Yield one line for each reason; targets of one reason stand together."""
    known, by_reason = reasons(), dict[str, list[str]]()
    for one in missed:
        reason = known.get(one.name, "Not looked into yet.")
        _, wanted, measured, _ = judged(one)
        by_reason.setdefault(reason, []).append(f"{one.name}: {measured}, wanted {wanted}")
    yield from (["; ".join(names), reason] for reason, names in by_reason.items())


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---" for _ in header], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
