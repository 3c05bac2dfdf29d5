"""Report: one run as tables for people and as JSON for machines.

The page of the documentation is made of many runs: `bench.page`.
"""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from bench.results import OURS, Results
from bench.targets import ALL, Target
from bench.workload import Workload

TARGET_HEADER = ["target", "wanted", "measured", ""]
_WORDS = {True: "met", False: "**missed**", None: "not measured"}


def as_json(results: Results) -> str:
    """Return the run as JSON (its shape: `bench.results`)."""
    return json.dumps(
        {
            "command": results.command,
            "machine": results.machine,
            "limits": results.limits,
            **results.found(),
            "medians": results.medians(),
            "targets": [
                {
                    "name": target.name,
                    "value": target.value(results),
                    "bound": target.bound,
                    "is_ceiling": target.is_ceiling,
                    "is_met": target.is_met(results),
                }
                for target in ALL
            ],
        },
        indent=1,
    )


def show(results: Results, workloads: list[Workload], console: Console) -> None:
    """Print one table for each workload, then the targets."""
    for workload in workloads:
        header, rows = grid(results, workload.name)
        if rows:
            _print(console, f"{workload.name}: {workload.title}", header, rows)
    _print(console, "targets", TARGET_HEADER, [target_row(t, results) for t in ALL])
    for failure in results.failures:
        console.print(f"[red]{failure['workload']} {failure['peer']}[/red]: {failure['error']}")


def target_row(target: Target, results: Results) -> list[str]:
    """Return a target's name, what was wanted, what was measured and how it is called."""
    value = target.value(results)
    return judged(target.name, target.bound, value, target.is_met(results), target.is_ceiling)


def judged(
    name: str, bound: float, value: float | None, is_met: bool | None, is_ceiling: bool
) -> list[str]:
    measured = "" if value is None else number(value)
    return [name, f"{'<=' if is_ceiling else '>='} {number(bound)}", measured, _WORDS[is_met]]


def grid(results: Results, workload: str) -> tuple[list[str], list[list[str]]]:
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


def number(value: float) -> str:
    """Return a number as tables have it: three digits, or all of the whole part."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _print(console: Console, title: str, header: list[str], rows: list[list[str]]) -> None:
    table = Table(*header, title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*(cell.replace("**", "") for cell in row))
    console.print(table)
