"""Measured: a program of `bench` beside the workloads, and what it printed, kept for the page.

    python -m bench record fold --rows 1e6

runs `python -m bench.fold --rows 1e6`, shows what it prints as it comes, and keeps it. The page
shows of each command the newest run, under the first line of the program's documentation.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import history, limits
from siltstone.cli.bench.machine import facts

PROGRAMS = (
    "fold", "upserts", "ingest", "space", "load", "load_memory",
    "cpu", "calls", "starving", "http_cpu", "version_cost", "start", "memory", "beside",
    "search", "search_load", "words", "encodings", "vector_upkeep",
)  # fmt: skip
"""In the order of the page: as a table grows; what a call costs."""
LINES_MAX = 200


def main(arguments: list[str]) -> int:
    """Run one program, and keep what it printed; return its exit code, and keep nothing then."""
    parser = argparse.ArgumentParser("python -m bench record", description=main.__doc__)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="siltstone-bench-") as folder:
        machine, allowed = facts(Path(folder)), limits.measure(Path(folder), 0.5)
    begin = time.perf_counter()
    code, lines = _printed(given.program, given.arguments)
    if code == 0:
        command = shlex.join(["python", "-m", f"bench.{given.program}", *given.arguments])
        found = {"program": given.program, "lines": lines}
        run = history.now("measured", command, time.perf_counter() - begin, machine, allowed, found)
        print(f"recorded as {history.add(run).name}; now: python -m bench report", file=sys.stderr)
    return code


def _printed(program: str, arguments: list[str]) -> tuple[int, list[str]]:
    """Run a program; return its exit code and the last lines that it printed."""
    command = [sys.executable, "-u", "-m", f"bench.{program}", *arguments]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines = [*lines, line.rstrip()][-LINES_MAX:]
    return process.returncode, lines


def title(program: str) -> str:
    """Return what a program measures: the first line of its documentation."""
    text = Path(__file__).with_name(f"{program}.py").read_text().split("\n", 1)[0]
    return text.strip('"').split(": `python")[0].split(", `python")[0].rstrip(".")
