"""The program that measures searches runs, and prints what it found."""

from __future__ import annotations

import subprocess
import sys

import pytest

VECTORS = ("--rows", "2000", "--size", "16")
LOAD = (*VECTORS, "--seconds", "0.05", "--threads", "2", "--commits", "20", "--peers")


@pytest.mark.parametrize(
    ("case", "arguments", "last"),
    [
        ("vectors", (*VECTORS, "--queries", "5", "--fresh", "0.01"), "of Lance's"),
        ("load", LOAD, "median of a search: siltstone"),
        ("words", ("--rows", "2000", "--queries", "4", "--fresh", "0.01"), "of ten rows"),
    ],
)
def test_each_case_of_searches_runs(case: str, arguments: tuple[str, ...], last: str) -> None:
    command = [sys.executable, "-m", "bench.search", case, *arguments]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert last in done.stdout
