"""Report: a run as a table for people, JSON for machines, and a page for the documentation.

The page is rewritten from its first generated line on; what stands above it is left alone.
"""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.results import OURS, Results, machine
from bench.targets import ALL, Target
from bench.workload import Workload

_MARK = "<!-- from here on: written by `python -m bench --report` -->"
_WORDS = {True: "met", False: "**missed**", None: "not measured"}


def as_json(results: Results) -> str:
    """Return the run as JSON (its shape: `bench.results`)."""
    return json.dumps(
        {
            "command": results.command,
            "machine": machine(),
            "limits": results.limits,
            "sizes": {"scale": results.sizes.scale, "seconds": results.sizes.seconds},
            "rounds": results.rounds,
            "medians": results.medians(),
            "failures": results.failures,
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
        header, rows = _grid(results, workload)
        if rows:
            _print(console, f"{workload.name}: {workload.title}", header, rows)
    _print(console, "targets", _TARGET_HEADER, _target_rows(results))
    for failure in results.failures:
        console.print(f"[red]{failure['workload']} {failure['peer']}[/red]: {failure['error']}")


def write(results: Results, workloads: list[Workload], page: Path) -> None:
    """Write the run below the mark of `page`."""
    head = page.read_text().partition(_MARK)[0] if page.exists() else "# Benchmarks\n\n"
    facts = {**machine(), **{name: _number(value) for name, value in results.limits.items()}}
    parts = [
        head.rstrip() + f"\n\n{_MARK}\n",
        f"`{results.command}`: {results.sizes.rounds} interleaved rounds, their medians.\n",
        "Every commit is synced, but for the peers marked *.\n",
        _markdown(["machine", ""], [[name, value] for name, value in facts.items()]),
        "## Targets\n",
        _markdown(_TARGET_HEADER, _target_rows(results)),
    ]
    for workload in workloads:
        header, rows = _grid(results, workload)
        if rows:
            parts += [f"## {workload.name}: {workload.title}\n", _markdown(header, rows)]
    if results.failures:
        lines = [f"- {f['workload']}, {f['peer']}: {f['error']}" for f in results.failures]
        parts += ["## What failed\n", "\n".join(lines) + "\n"]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(parts))


_TARGET_HEADER = ["target", "wanted", "measured", ""]


def _target_rows(results: Results) -> list[list[str]]:
    return [_target_row(target, results) for target in ALL]


def _target_row(target: Target, results: Results) -> list[str]:
    sign = "<=" if target.is_ceiling else ">="
    found = target.value(results)
    measured = "" if found is None else _number(found)
    return [
        target.name,
        f"{sign} {_number(target.bound)}",
        measured,
        _WORDS[target.is_met(results)],
    ]


def _grid(results: Results, workload: Workload) -> tuple[list[str], list[list[str]]]:
    """Return one row for each metric and one column for each peer, ours first."""
    found = results.rounds.get(workload.name, {})
    peers = sorted(found, key=lambda name: (name != OURS, name))
    metrics = list(dict.fromkeys(metric for peer in peers for metric in found[peer]))
    header = ["", *(name if name in results.durable else f"{name} *" for name in peers)]
    rows: list[list[str]] = []
    for metric in metrics:
        values = [results.value(workload.name, metric, peer) for peer in peers]
        rows.append([metric, *("" if value is None else _number(value) for value in values)])
    return header, rows


def _number(value: float) -> str:
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


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
