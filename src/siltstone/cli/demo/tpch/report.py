"""Report: what the demo on Spark prints: the time of every query, and the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from siltstone.cli.demo.report import crew_facts, latency_facts, print_titled, rate
from siltstone.cli.demo.tpch.queries import QUERIES
from siltstone.cli.demo.tpch.together import Together
from siltstone.cli.output import Form

ENGINES = ("Spark", "DuckDB")


def print_queries(answers_s: Mapping[str, Sequence[float]], form: Form) -> None:
    """Print how long queries took.

    The first answer of an engine waits for its processes to start; the fastest does not.
    """
    lines = [
        (
            query,
            *(round(1e3 * min(answers_s[f"{query} {engine}"], default=0)) for engine in ENGINES),
        )
        for query in QUERIES
    ]
    print_titled("Queries, fastest ms", ["query", *ENGINES], lines, form)


def pipeline_facts(
    loaded: Mapping[str, int], load_s: float, together: Together
) -> dict[str, object]:
    """Return the facts of a run on Spark."""
    done, stream, base = together.done, together.stream, together.base
    sets = len(stream.applied)
    return {
        **{f"rows of {name}": count for name, count in loaded.items()},
        "scale": base.scale,
        "seconds of loading": round(load_s, 1),
        "rows loaded per second": round(sum(loaded.values()) / load_s),
        "seconds at once": round(done.seconds, 1),
        "refresh sets": sets,
        "orders inserted and deleted": 2 * base.orders_per_set * sets,
        "refresh sets per second": rate(sets, done.seconds),
        **latency_facts("refresh commit ", stream.latencies_s),
        "restarts of the stream": together.restarts,
        "sets that came again": stream.tries - sets,
        "row transactions": len(done.latencies_s),
        **crew_facts(done, "row "),
        "optimizes on Spark": together.optimizes,
        "rounds of queries": together.rounds,
    }
