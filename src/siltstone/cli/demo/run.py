"""Run: the demo from the first row to the summary.

load ─▶ replay beside readers, checkpoints, merges ─▶ kill, reopen, check ─▶ ask ─▶ summary
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from siltstone.cli.demo import data, model, report
from siltstone.cli.demo.checks import VIOLATIONS_SHOWN, Findings
from siltstone.cli.demo.crash import crash
from siltstone.cli.demo.replay import Replay, Replayed, Shared
from siltstone.cli.exits import Exit, UsageError
from siltstone.cli.output import form_of
from siltstone.cli.sessions import note
from siltstone.errors import UnavailableError
from siltstone.store import Store, connect

ROWS_LEFT_FOR_CRASHES = 40_000
PASTS_SHOWN = 3


def run(*, seconds: float, threads: int, kills: int, keep: Path | None, ndjson: bool) -> None:
    """Run the demo.

    Raises:
        typer.Exit: With 1, if any check was violated.
        UnavailableError: A package that it needs is missing.
    """
    form = form_of(json=False, ndjson=ndjson)
    require_duckdb()
    began = time.perf_counter()
    findings = Findings()
    with home(keep) as path:
        note("reading the flights of 2013")
        flights = data.flights()
        with connect(path) as store:
            loaded = model.prepare(store)
            most = flights.slice(0, len(flights) - ROWS_LEFT_FOR_CRASHES)
            replayed = _replay(store, Shared(data.landings(most)), findings, seconds, threads)
        start, crashes = replayed.last_id, []
        for number in range(kills):
            note(f"killing a writer in full flight, {number + 1} of {kills}")
            crashes.append(crash(path, start, threads, findings))
            start = crashes[-1].last_id
        with connect(path, read_only=True) as store:
            report.print_answers(store, _some(replayed.seqs), form)
    ran = report.DemoRun(loaded, replayed, crashes, findings, time.perf_counter() - began)
    report.print_summary(ran, form)
    for text in findings.wrong[:VIOLATIONS_SHOWN]:
        note(f"violated: {text}")
    if findings.wrong:
        raise typer.Exit(Exit.FAILED)


def require_duckdb() -> None:
    """Refuse to go on without DuckDB.

    Raises:
        UnavailableError: It is not installed.
    """
    try:
        import duckdb  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise UnavailableError("the demo needs duckdb: pip install 'siltstone[demo]'") from error


def _some(seqs: list[int]) -> list[int]:
    """Return a few of the seqs, spread over all."""
    step = max(1, len(seqs) // PASTS_SHOWN)
    return seqs[::step][:PASTS_SHOWN]


@contextmanager
def home(keep: Path | None, inside: str = "") -> Generator[Path]:
    """Give the demo a directory: a temporary one, or the new one that is to be kept.

    `inside` is where in it the store lies.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="siltstone-demo-") as folder:
            yield Path(folder) / "store"
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"{keep} is there already and not an empty directory")
    yield keep
    store = keep / inside
    note(f"the store is kept in {store}; try: siltstone tables --db {store}")


def _replay(
    store: Store, flights: Shared, findings: Findings, seconds: float, threads: int
) -> Replayed:
    console = Console(stderr=True)
    text = TextColumn("replaying {task.fields[landed]:,} landings")
    bar = Progress(text, BarColumn(), TimeRemainingColumn(), console=console)
    bar.disable = not console.is_terminal
    if bar.disable:
        note(f"replaying for {seconds:.0f} seconds with {threads} threads")
    with bar:
        task = bar.add_task("", total=seconds, landed=0)

        def tick(passed: float, landed: int) -> None:
            bar.update(task, completed=passed, landed=landed)

        return Replay(store, flights, findings).run(seconds, threads, tick)
