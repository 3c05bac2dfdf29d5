"""Run: the demo on Spark from the first row to the summary.

generate ─▶ load in one commit ─▶ stream, rows, queries, maintenance at once ─▶ settle ─▶ summary
"""

from __future__ import annotations

import time
from pathlib import Path

from siltstone.cli.demo.report import print_summary
from siltstone.cli.demo.run import checked_run
from siltstone.cli.demo.tpch import data
from siltstone.cli.demo.tpch.pipeline import RefreshStream, load, start_spark
from siltstone.cli.demo.tpch.refresh import RefreshSets
from siltstone.cli.demo.tpch.report import pipeline_facts, print_queries
from siltstone.cli.demo.tpch.together import Together
from siltstone.cli.output import Form
from siltstone.cli.progress import progress_bar
from siltstone.cli.sessions import note
from siltstone.store import connect


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
        print_queries(together.answers_s, form)
        print_summary(pipeline_facts(loaded, load_s, together), findings, form)
