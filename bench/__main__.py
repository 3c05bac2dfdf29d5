"""The commands: `python -m bench --help`; `curves`, `report` with it."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench import kept, limits, page, peer, report, runner
from bench.curves import command as curves
from bench.results import Results
from bench.workload import Sizes, Workload
from bench.workloads import ALL
from siltstone.cli.bench.machine import facts

_QUICK = Sizes(scale=0.02, seconds=0.2, rounds=1)


def main() -> int:
    """Run what the command line asks for; return 1 where anything failed."""
    command = _COMMANDS.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if command is not None:
        return command(sys.argv[2:])
    return _compare(_parser().parse_args())


def _compare(arguments: argparse.Namespace) -> int:
    if arguments.list:
        for workload in ALL:
            print(f"{workload.name:10}{workload.title}")
        return 0
    sizes = (
        _QUICK if arguments.quick else Sizes(arguments.scale, arguments.seconds, arguments.rounds)
    )
    if arguments.record and sizes.scale < 1:
        sys.exit("--record: what is measured on small tables is not kept")
    workloads = _chosen(arguments.workloads)
    begin = time.perf_counter()
    results = _measured(arguments, sizes, workloads)
    report.show(results, workloads, Console())
    seconds, found = time.perf_counter() - begin, results.found()
    run = kept.now("workloads", results.command, seconds, results.machine, results.limits, found)
    if arguments.json:
        arguments.json.write_text(kept.as_json(run))
    is_full = sizes.scale >= 1 and not (arguments.workloads or arguments.peers)
    if is_full or arguments.record:
        kept.keep(run)
        print("kept; now: python -m bench report", file=sys.stderr)
    return 1 if results.failures else 0


def _measured(arguments: argparse.Namespace, sizes: Sizes, workloads: list[Workload]) -> Results:
    folder = Path(tempfile.mkdtemp(prefix="siltstone-bench-", dir=arguments.dir))
    try:
        found = limits.measure(folder, sizes.seconds)
        command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
        results = Results(command, sizes, found, facts(folder))
        names = runner.available(_peers(arguments.peers), results)
        with Console(stderr=True).status("...", refresh_per_second=1) as status:
            for workload in workloads:
                runner.run(workload, names, folder, results, status.update)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def _report(arguments: list[str]) -> int:
    """Write the page anew; return 1 where a target is missed and nobody said why."""
    parser = argparse.ArgumentParser(
        "python -m bench report", description="the page of the documentation, from what is kept"
    )
    parser.add_argument("--page", type=Path, default=page.PAGE)
    unexplained = page.write(parser.parse_args(arguments).page)
    for name in unexplained:
        print(f"missed, and bench/reasons.toml does not say why: {name}", file=sys.stderr)
    return 1 if unexplained else 0


_COMMANDS = {"curves": curves.main, "report": _report}


def _chosen(names: str | None) -> list[Workload]:
    wanted = names.split(",") if names else [workload.name for workload in ALL]
    unknown = set(wanted) - {workload.name for workload in ALL}
    if unknown:
        sys.exit(f"no workload {', '.join(sorted(unknown))}")
    return [workload for workload in ALL if workload.name in wanted]


def _peers(names: str | None) -> list[str]:
    wanted = names.split(",") if names else list(peer.NAMES)
    unknown = set(wanted) - set(peer.NAMES)
    if unknown:
        sys.exit(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(peer.NAMES)}")
    return wanted


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m bench",
        description="siltstone beside its peers; other commands, each with a --help of its own:"
        " curves, report",
    )
    parser.add_argument("--workloads", help="W1,W3,...; all of them if not given")
    parser.add_argument("--peers", help="siltstone,sqlite,...; all that are installed if not given")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of everything, in turns")
    parser.add_argument("--scale", type=float, default=1.0, help="of tables and batches")
    parser.add_argument("--quick", action="store_true", help="one round, small: under two minutes")
    parser.add_argument("--dir", type=Path, help="where to write; must be the disk in question")
    parser.add_argument("--json", type=Path, help="write the run to this file")
    parser.add_argument("--list", action="store_true", help="name the workloads, measure nothing")
    parser.add_argument("--record", action="store_true", help="keep what is not a full run, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
