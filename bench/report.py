"""Report: one run as tables for people, on a terminal.

The page of the documentation is made of what is kept of many runs: `bench.page`.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from bench.results import OURS, Results
from bench.targets import ALL, Answer
from bench.workload import Workload

_WORDS = {True: "met", False: "missed", None: "not measured"}


def show(results: Results, workloads: list[Workload], console: Console) -> None:
    """Print one table for each workload, then the targets."""
    for workload in workloads:
        header, rows = _grid(results, workload.name)
        if rows:
            _print(console, f"{workload.name}: {workload.title}", header, rows)
    show_targets([target.answer(results) for target in ALL], console)
    for failure in results.failures:
        console.print(f"[red]{failure['workload']} {failure['peer']}[/red]: {failure['error']}")


def show_targets(answers: list[Answer], console: Console) -> None:
    """Print one line for each target."""
    header = ["target", "wanted", "measured", ""]
    _print(console, "targets", header, [judged(each) for each in answers])


def judged(answer: Answer) -> list[str]:
    """Return a target's name, what was wanted, what was measured and how that is called."""
    wanted = f"{'<=' if answer.is_ceiling else '>='} {number(answer.bound)}"
    measured = "" if answer.value is None else number(answer.value)
    return [answer.name, wanted, measured, _WORDS[answer.is_met]]


def number(value: float) -> str:
    """Return a number as tables have it: three digits, or all of the whole part."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _grid(results: Results, workload: str) -> tuple[list[str], list[list[str]]]:
    """Return one row for each metric and one column for each peer, ours first."""
    found = results.rounds.get(workload, {})
    peers = sorted(found, key=lambda name: (name != OURS, name))
    metrics = list(dict.fromkeys(metric for peer in peers for metric in found[peer]))
    header = ["", *(name if name in results.durable else f"{name} *" for name in peers)]
    rows: list[list[str]] = []
    for metric in metrics:
        values = [results.value(workload, metric, peer) for peer in peers]
        rows.append([metric, *("" if value is None else number(value) for value in values)])
    return header, rows


def _print(console: Console, title: str, header: list[str], rows: list[list[str]]) -> None:
    table = Table(*header, title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    console.print(table)
