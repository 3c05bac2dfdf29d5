"""Run: the demo from the first row to the summary.

load ─▶ replay with readers, checkpoints, merges ─▶ kill, reopen, check ─▶ ask ─▶ summary
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer

from siltstone.cli.demo import data, model, report
from siltstone.cli.demo.checks import VIOLATIONS_SHOWN, Findings
from siltstone.cli.demo.crash import Crashed, crash
from siltstone.cli.demo.replay import Shared, replay
from siltstone.cli.exits import Exit, UsageError
from siltstone.cli.output import Form
from siltstone.cli.sessions import note
from siltstone.store import connect

ROWS_LEFT_FOR_CRASHES = 40_000
PASTS_SHOWN = 3


def run(*, seconds: float, threads: int, kills: int, keep: Path | None, form: Form) -> None:
    """Run the demo.

    Raises:
        typer.Exit: With 1, if any check was violated.
        UnavailableError: The flights are not installed.
    """
    with checked_run(keep) as (path, findings):
        note("reading the flights of 2013")
        flights = data.flights()
        with connect(path) as store:
            loaded = model.prepare(store)
            most = flights.slice(0, len(flights) - ROWS_LEFT_FOR_CRASHES)
            landings = Shared(data.landings(most))
            note(f"replaying for {seconds:.0f} seconds with {threads} threads")
            done = replay(store, landings, findings, seconds, threads)
        start, crashes = landings.taken, list[Crashed]()
        for number in range(kills):
            note(f"killing a writer in full flight, {number + 1} of {kills}")
            crashes.append(crash(path, start, threads, findings))
            start = crashes[-1].last_id
        seqs = done.checkpoint_seqs
        some = seqs[:: max(1, len(seqs) // PASTS_SHOWN)][:PASTS_SHOWN]
        with connect(path, read_only=True) as store:
            report.print_answers(store, some, form)
        report.print_summary(report.flight_facts(loaded, done, crashes), findings, form)


@contextmanager
def checked_run(keep: Path | None, inside: str = "") -> Generator[tuple[Path, Findings]]:
    """Give a demo its findings and a directory: a temporary one, or the new one that is to be kept.

    `inside` is where in it the store lies.

    Raises:
        typer.Exit: With 1, if the demo found anything wrong.
        UsageError: The directory is not empty.
    """
    findings = Findings()
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="siltstone-demo-") as folder:
            yield Path(folder) / "store", findings
    else:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise UsageError(f"{keep} is there already and not an empty directory")
        yield keep, findings
        store = keep / inside
        note(f"the store is kept in {store}; try: siltstone tables --db {store}")
    for text in findings.wrong[:VIOLATIONS_SHOWN]:
        note(f"violated: {text}")
    if findings.wrong:
        raise typer.Exit(Exit.FAILED)
