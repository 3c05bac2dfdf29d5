"""The command: `python -m bench.spark --help`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from bench import kept
from bench.report import show_targets
from bench.spark import tpch, workloads
from bench.spark.workloads import Place
from bench.targets import Answer
from siltstone.cli.bench.machine import facts
from siltstone.spark import session

Found = dict[str, Any]
TPCH = "TPC-H"
_ROWS = 10_000_000


def main() -> int:
    """Run the workloads and show, for each target, the ratio that was measured."""
    arguments = _parser().parse_args()
    begin = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="siltstone-bench-", dir=arguments.dir))
    spark = session(
        {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "4g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
        master="local[2]",
    )
    spark.sparkContext.setLogLevel("ERROR")
    place = Place(spark, folder, arguments.rows, arguments.rounds)
    console = Console(stderr=True)
    found: Found = {}
    machine = facts(folder)
    try:
        workloads.prepare(place)
        steps: dict[str, Callable[[], Any]] = {
            "plan a read after a commit": lambda: workloads.plans(place),
            "read all, 10 % of the keys overlaid": lambda: workloads.overlay(place),
            "write half of the rows": lambda: workloads.writes(place),
            "merge 1 % of the rows": lambda: workloads.merges(place),
            "first query of a session": lambda: workloads.first_queries(place),
            "upsert 1 % of the rows": lambda: workloads.upserts(place),
            "stream all rows": lambda: workloads.streams(place),
            "a micro-batch of 10 rows": lambda: workloads.batch_overhead(place),
            "compact 200 files": lambda: workloads.compactions(place),
            TPCH: lambda: tpch.run(place, arguments.scale),
        }
        for name, step in steps.items():
            if arguments.only and arguments.only not in name:
                continue
            console.print(name, "...")
            found[name] = step()
            console.print(found[name])
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    targets = _targets(found)
    show_targets([Answer(**each) for each in targets], Console())
    command = shlex.join(["python", "-m", "bench.spark", *sys.argv[1:]])
    answered = {"rows": arguments.rows, "medians": _medians(found), "targets": targets}
    if TPCH in found:
        answered["TPC-H"] = {"scale": arguments.scale, "ratios": _ratios(found[TPCH])}
    run = kept.now("spark", command, time.perf_counter() - begin, machine, {}, answered)
    if arguments.json:
        arguments.json.write_text(kept.as_json(run))
    if not arguments.only and arguments.rows >= _ROWS and arguments.scale >= 1:
        kept.keep(run)
        console.print("kept; now: python -m bench report")
    return 0


def _medians(found: Found) -> Found:
    return {
        step: {
            peer: median(values) if isinstance(values, list) else values
            for peer, values in peers.items()
        }
        for step, peers in found.items()
    }


def _ratios(found: workloads.Seconds) -> Found:
    """Return each query's time over Parquet's, by peer."""
    return {peer: tpch.ratios(found, peer) for peer in (tpch.OURS, tpch.FRESH)}


def _targets(found: Found) -> list[dict[str, Any]]:
    """Return each target with its answer, as `bench.targets.Answer` has them."""

    def ratio(step: str, ours: str, theirs: str) -> float | None:
        if step not in found:
            return None
        pairs = zip(found[step][ours], found[step][theirs], strict=False)
        return median([mine / other for mine, other in pairs])

    def inverse(value: float | None) -> float | None:
        return None if value is None else 1 / value

    plans = found.get("plan a read after a commit", {})
    streamed = found.get("stream all rows", {}).get("rows/s")
    overlaid = ratio("read all, 10 % of the keys overlaid", "overlaid", "clean")
    queries = found.get(TPCH)

    def speed(step: str, theirs: str) -> float | None:
        return inverse(ratio(step, "siltstone", theirs))

    def planned(which: str) -> float | None:
        return median(plans[which]) if plans else None

    rows: list[tuple[str, float, float | None, bool]] = [
        (
            "all columns: x Parquet's speed",
            1.1,
            inverse(tpch.read_ratio(queries, tpch.ALL_COLUMNS)),
            False,
        ),
        *(
            (f"{read}: x Parquet's time", 0.95, tpch.read_ratio(queries, read), True)
            for read in tpch.READS
        ),
        ("first plan after a commit, 7.5 % in the log: s", 0.03, planned("with a log"), True),
        ("plan again: s", 0.005, planned("clean, again"), True),
        ("overlay: x the time of a clean read", 1.3, overlaid, True),
        ("write: x Parquet's speed", 0.8, speed("write half of the rows", "parquet"), False),
        ("MERGE of 1 %: x a scan and an upsert", 1.5, _merge(found), True),
        (
            "first query: x Parquet's time",
            1.3,
            ratio("first query of a session", "siltstone", "parquet"),
            True,
        ),
        (
            "upsert: x the speed of Delta's merge",
            8,
            speed("upsert 1 % of the rows", "delta"),
            False,
        ),
        ("stream: rows/s through source and sink", 50_000, streamed, False),
        ("micro-batch: x rate into noop and a commit", 1.5, _micro_batch(found), True),
        ("optimize: x Lance's own compaction", 0.8, speed("compact 200 files", "lance"), False),
        ("TPC-H: x Parquet's time", 0.9, tpch.mean_ratio(queries, tpch.OURS), True),
        ("TPC-H, slowest query: x Parquet's time", 1.3, tpch.worst_ratio(queries, tpch.OURS), True),
        (
            "TPC-H with 5 % fresh rows: x Parquet's time",
            1.1,
            tpch.mean_ratio(queries, tpch.FRESH),
            True,
        ),
    ]
    return [
        {"name": f"Spark, {what}", "bound": bound, "value": value, "is_ceiling": is_ceiling}
        for what, bound, value, is_ceiling in rows
    ]


def _merge(found: Found) -> float | None:
    """Return a MERGE over a scan of the columns that it reads and an upsert of its rows."""
    step = found.get("merge 1 % of the rows")
    if step is None:
        return None
    return median(step["merge"]) / (median(step["scan"]) + median(step["upsert"]))


def _micro_batch(found: Found) -> float | None:
    """Return a micro-batch of ours over one of Spark's own and a commit of its rows."""
    step = found.get("a micro-batch of 10 rows")
    if step is None:
        return None
    theirs = median(step["rate into noop"]) + median(step["a commit"])
    return median(step["siltstone"]) / theirs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=_ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1, help="the scale factor of TPC-H")
    parser.add_argument("--only", help="the workloads whose name holds this")
    parser.add_argument("--dir", type=Path, help="where to write; must be the disk in question")
    parser.add_argument("--json", type=Path, help="write the run to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
