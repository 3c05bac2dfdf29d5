"""The programs that measure searches run, and print what the page shows of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

VECTORS = ("--rows", "2000", "--size", "16")
LOAD = (*VECTORS, "--seconds", "0.05", "--threads", "2", "--commits", "20", "--peers")


@pytest.mark.parametrize(
    ("program", "arguments", "last"),
    [
        ("search", (*VECTORS, "--queries", "5", "--fresh", "0.01"), "of Lance's"),
        ("search_load", LOAD, "median of a search: siltstone"),
        ("words", ("--rows", "2000", "--queries", "4", "--fresh", "0.01"), "of ten rows"),
        ("vector_upkeep", (*VECTORS, "--folds", "2", "--queries", "5"), "of base uncovered"),
    ],
)
def test_a_program_that_measures_searches_runs(
    program: str, arguments: tuple[str, ...], last: str
) -> None:
    command = [sys.executable, "-m", f"bench.{program}", *arguments]
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert last in done.stdout
