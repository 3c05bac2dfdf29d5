"""The command: `python -m bench --help`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench import limits, peer, report, runner
from bench.results import Results
from bench.workload import Sizes, Workload
from bench.workloads import ALL

_QUICK = Sizes(scale=0.02, seconds=0.2, rounds=1)


def main() -> int:
    """Run what the command line asks for; return 1 where anything failed."""
    arguments = _parser().parse_args()
    sizes = _QUICK if arguments.quick else Sizes(arguments.scale, arguments.seconds, 3)
    workloads = _chosen(arguments.workloads)
    folder = Path(tempfile.mkdtemp(prefix="siltstone-bench-", dir=arguments.dir))
    quiet = Console(stderr=True)
    try:
        found = limits.measure(folder, sizes.seconds)
        command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
        results = Results(command, sizes, found)
        names = runner.available(_peers(arguments.peers), results)
        with quiet.status("...") as status:
            for workload in workloads:
                runner.run(workload, names, folder, results, status.update)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.show(results, workloads, Console())
    if arguments.json:
        arguments.json.write_text(report.as_json(results))
    if arguments.report:
        report.write(results, workloads, arguments.report)
    return 1 if results.failures else 0


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
    parser = argparse.ArgumentParser("python -m bench", description="siltstone beside its peers")
    parser.add_argument("--workloads", help="W1,W3,...; all of them if not given")
    parser.add_argument("--peers", help="siltstone,sqlite,...; all that are installed if not given")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--scale", type=float, default=1.0, help="of tables and batches")
    parser.add_argument("--quick", action="store_true", help="one round, small: under two minutes")
    parser.add_argument("--dir", type=Path, help="where to write; must be the disk in question")
    parser.add_argument("--json", type=Path, help="write all values to this file")
    parser.add_argument("--report", type=Path, help="write the page of the documentation")
    return parser


if __name__ == "__main__":
    sys.exit(main())
