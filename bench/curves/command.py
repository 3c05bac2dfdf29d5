"""The command: `python -m bench curves --help`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import kept, limits
from bench.curves import ALL
from bench.curves.curve import Bounds, Curve, follow
from bench.machine import facts
from bench.report import number


def main(arguments: list[str]) -> int:
    """Measure the curves; return 1 where a point failed."""
    given = _parser().parse_args(arguments)
    chosen = _chosen(given.only)
    if given.record and given.quick:
        sys.exit("--record: what is measured at few points is not kept")
    seconds = 0.1 if given.quick else given.seconds
    limit_s = 8.0 if given.quick else given.limit
    begin = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="siltstone-bench-", dir=given.dir))
    found: dict[str, Any] = {}
    try:
        machine = facts(folder)
        allowed = limits.measure(folder, seconds)
        with Console(stderr=True).status("...", refresh_per_second=1) as status:
            for kind in chosen:
                bounds = Bounds(seconds, limit_s, _x_max(kind, given))
                found[kind.name] = follow(kind, folder, bounds, status.update)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for kind in chosen:
        _show(kind, found[kind.name], Console())
    is_sound = not any("error" in each for each in found.values())
    if given.record or (is_sound and not given.quick and len(chosen) == len(ALL)):
        command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
        seconds = time.perf_counter() - begin
        kept.keep(kept.now("curves", command, seconds, machine, allowed, found))
        print("kept; now: python -m bench report", file=sys.stderr)
    return 0 if is_sound else 1


def _chosen(names: str | None) -> list[type[Curve]]:
    wanted = names.split(",") if names else [kind.name for kind in ALL]
    unknown = set(wanted) - {kind.name for kind in ALL}
    if unknown:
        known = ", ".join(kind.name for kind in ALL)
        sys.exit(f"no curve {', '.join(sorted(unknown))}; there are {known}")
    return [kind for kind in ALL if kind.name in wanted]


def _x_max(kind: type[Curve], given: argparse.Namespace) -> int | None:
    if kind.name == "rows" and given.rows_max is not None:
        return int(given.rows_max)
    return max(kind.points[1], kind.x_usual // 100) if given.quick else None


def _show(kind: type[Curve], found: dict[str, Any], console: Console) -> None:
    points = found["points"]
    metrics = list(dict.fromkeys(name for point in points for name in point if name != "x"))
    table = Table("")
    for point in points:
        table.add_column(f"{point['x']:,}", justify="right")
    for metric in metrics:
        cells = [number(point[metric]) if metric in point else "" for point in points]
        table.add_row(metric, *cells)
    console.print(f"{kind.name}: {kind.title}", table)
    for x, reason in found["left_out"].items():
        console.print(f"{x} left out: {reason}")
    if "error" in found:
        console.print(f"[red]{kind.name}[/red]: {found['error']}")


def _parser() -> argparse.ArgumentParser:
    names = ", ".join(kind.name for kind in ALL)
    parser = argparse.ArgumentParser(
        "python -m bench curves", description="siltstone with more and more of one thing"
    )
    parser.add_argument("--only", help=f"some of: {names}")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds of each curve")
    parser.add_argument(
        "--rows-max", type=float, help="of the curve of rows; 1e8 needs --limit 600"
    )
    parser.add_argument("--quick", action="store_true", help="few points: under a minute")
    parser.add_argument("--dir", type=Path, help="where to write; must be the disk in question")
    parser.add_argument("--record", action="store_true", help="keep what is not a full run, too")
    return parser
