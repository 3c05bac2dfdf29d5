"""Run: the demo on Spark from the first row to the summary.

generate ─▶ load in one commit ─▶ stream, rows, queries, maintenance at once ─▶ settle ─▶ summary
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from examples.tpch import data
from examples.tpch.pipeline import RefreshStream, load, start_spark
from examples.tpch.queries import QUERIES
from examples.tpch.refresh import RefreshSets
from examples.tpch.together import Together
from siltstone.cli.demo.report import crew_facts, latency_facts, print_summary, print_titled, rate
from siltstone.cli.demo.run import checked_run
from siltstone.cli.output import Form
from siltstone.cli.progress import progress_bar
from siltstone.cli.sessions import note
from siltstone.spark import register
from siltstone.store import connect

ENGINES = ("Spark", "DuckDB")
CATALOG = "tpch"


def run(
    *, scale: float, seconds: float, threads: int, restarts: int, keep: Path | None, form: Form
) -> None:
    """Run the demo.

    Raises:
        typer.Exit: With 1, if any check was violated.
        UnavailableError: A package, or a Java, that it needs is missing.
    """
    with checked_run(keep, "store") as (folder, findings):
        note(f"making the tables of TPC-H at scale {scale:g}")
        files = data.generate(folder / "parquet", scale)
        base = data.BaseTables.read(files, scale)
        note("starting Spark")
        with start_spark(folder, scale) as spark, connect(folder / "store") as store:
            register(spark, stores={CATALOG: store})
            note("loading all tables in one commit")
            load_began = time.perf_counter()
            loaded = load(spark, store, files)
            load_s = time.perf_counter() - load_began
            stream = RefreshStream(spark, store, RefreshSets(files, base), folder / "stream")
            together = Together(spark, store, stream, base, findings)
            note(f"refreshing, moving and asking at once for {seconds:.0f} seconds")
            with progress_bar("at once") as told:

                def tick(passed: float) -> None:
                    told(together.said(), int(passed), int(seconds))

                together.run(seconds, threads, restarts, tick)
        _print_queries(together.answers_s, form)
        print_summary(_facts(loaded, load_s, together), findings, form)


def _print_queries(answers_s: Mapping[str, Sequence[float]], form: Form) -> None:
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


def _facts(loaded: Mapping[str, int], load_s: float, together: Together) -> dict[str, object]:
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
        "restarts of the stream": stream.restarts,
        "sets that came again": stream.tries - sets,
        "row transactions": len(done.latencies_s),
        **crew_facts(done, "row "),
        "optimizes on Spark": together.optimizes,
        "rounds of queries": together.rounds,
    }
