"""Run: the demo on Spark from the first row to the summary.

generate ─▶ load in one commit ─▶ stream, rows, queries, maintenance at once ─▶ settle ─▶ summary
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from siltstone.cli.demo.checks import VIOLATIONS_SHOWN, Findings
from siltstone.cli.demo.run import home, require_duckdb
from siltstone.cli.demo.tpch import data
from siltstone.cli.demo.tpch.pipeline import RefreshStream, load, start_spark
from siltstone.cli.demo.tpch.refresh import RefreshSets
from siltstone.cli.demo.tpch.report import PipelineRun, print_report
from siltstone.cli.demo.tpch.together import Together
from siltstone.cli.exits import Exit
from siltstone.cli.output import form_of
from siltstone.cli.sessions import note
from siltstone.store import connect


def run(
    *, scale: float, seconds: float, threads: int, restarts: int, keep: Path | None, ndjson: bool
) -> None:
    """Run the demo.

    Raises:
        typer.Exit: With 1, if any check was violated.
        UnavailableError: A package, or a Java, that it needs is missing.
    """
    form = form_of(json=False, ndjson=ndjson)
    require_duckdb()
    began = time.perf_counter()
    findings = Findings()
    with home(keep, "store") as folder:
        note(f"making the tables of TPC-H at scale {scale:g}")
        files = data.generate(folder / "parquet", scale)
        base = data.BaseTables.read(files, scale)
        sets = RefreshSets(base, data.schema(files["orders"]), data.schema(files["lineitem"]))
        note("starting Spark")
        with _spark(folder, scale) as spark, connect(folder / "store") as store:
            note("loading all tables in one commit")
            load_began = time.perf_counter()
            loaded = load(spark, store, files)
            load_s = time.perf_counter() - load_began
            stream = RefreshStream(spark, store, sets, folder / "stream")
            together = Together(spark, store, stream, base, findings)
            _together(together, stream, seconds, threads, restarts)
    ran = PipelineRun(
        scale=scale,
        loaded=loaded,
        load_s=load_s,
        stream=stream,
        orders_per_set=sets.orders_per_set,
        done=together.done,
        findings=findings,
        seconds=time.perf_counter() - began,
    )
    print_report(ran, form)
    for text in findings.wrong[:VIOLATIONS_SHOWN]:
        note(f"violated: {text}")
    if findings.wrong:
        raise typer.Exit(Exit.FAILED)


@contextmanager
def _spark(folder: Path, scale: float) -> Generator[SparkSession]:
    spark = start_spark(folder, scale)
    try:
        yield spark
    finally:
        spark.stop()


def _together(
    together: Together, stream: RefreshStream, seconds: float, threads: int, restarts: int
) -> None:
    console = Console(stderr=True)
    text = TextColumn("{task.fields[said]}")
    bar = Progress(text, BarColumn(), TimeRemainingColumn(), console=console)
    bar.disable = not console.is_terminal
    if bar.disable:
        note(f"refreshing, moving and asking at once for {seconds:.0f} seconds")
    with bar:
        task = bar.add_task("", total=seconds, said="")

        def tick(passed: float) -> None:
            moves = len(together.done.moves_s)
            said = f"{len(stream.applied)} refresh sets, {moves:,} row transactions"
            bar.update(task, completed=passed, said=f"{said}, {together.done.answers} answers")

        together.run(seconds, threads, restarts, tick)
