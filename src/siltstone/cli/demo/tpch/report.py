"""Report: what the demo on Spark prints: the time of every query, and the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from siltstone.cli.demo.checks import Findings
from siltstone.cli.demo.report import percentiles_ms, print_titled
from siltstone.cli.demo.tpch.pipeline import RefreshStream
from siltstone.cli.demo.tpch.queries import QUERIES
from siltstone.cli.demo.tpch.together import Done
from siltstone.cli.output import Form

ENGINES = ("Spark", "DuckDB")


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """All parts of one run."""

    scale: float
    loaded: Mapping[str, int]
    load_s: float
    stream: RefreshStream
    orders_per_set: int
    done: Done
    findings: Findings
    seconds: float


def print_report(ran: PipelineRun, form: Form) -> None:
    """Print how long queries took, then rates, latencies and checks."""
    lines = [
        (query, *(_fastest_ms(ran.done.answers_s[f"{query} {engine}"]) for engine in ENGINES))
        for query in QUERIES
    ]
    print_titled("Queries, fastest ms", ["query", *ENGINES], lines, form)
    print_titled("Summary", ["fact", "value"], list(summary(ran).items()), form)


def summary(ran: PipelineRun) -> dict[str, object]:
    """Return the facts of a run."""
    done, stream = ran.done, ran.stream
    rows = sum(ran.loaded.values())
    facts: dict[str, object] = {f"rows of {name}": count for name, count in ran.loaded.items()}
    commits, moves = percentiles_ms(stream.latencies_s), percentiles_ms(done.moves_s)
    facts |= {
        "scale": ran.scale,
        "seconds of loading": round(ran.load_s, 1),
        "rows loaded per second": round(rows / ran.load_s),
        "seconds at once": round(done.seconds, 1),
        "refresh sets": len(stream.applied),
        "orders inserted and deleted": 2 * ran.orders_per_set * len(stream.applied),
        "refresh sets per second": _rate(len(stream.applied), done.seconds),
        "refresh commit latency p50, ms": commits[0],
        "refresh commit latency p99, ms": commits[1],
        "restarts of the stream": done.restarts,
        "sets that came again": stream.tries - len(stream.applied),
        "row transactions": len(done.moves_s),
        "row transactions per second": _rate(len(done.moves_s), done.seconds),
        "row latency p50, ms": moves[0],
        "row latency p99, ms": moves[1],
        "conflicts run again": done.attempts - len(done.moves_s),
        "checkpoints": done.checkpoints,
        "merges": done.merges,
        "optimizes on Spark": done.optimizes,
        "rounds of queries": done.rounds,
    }
    facts |= {f"checks: {name}": n for name, n in sorted(ran.findings.checked.items())}
    return facts | {
        "violated checks": len(ran.findings.wrong),
        "seconds in all": round(ran.seconds, 1),
    }


def _fastest_ms(times_s: Sequence[float]) -> int:
    """The first answer of an engine waits for its processes to start; the fastest does not."""
    return round(1e3 * min(times_s, default=0.0))


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds else 0.0
