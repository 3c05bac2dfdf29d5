"""Suites of queries give at a URL what they give in a directory. A file of the night."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.reach.conftest import new_url
from tests.support.bucket_servers import RunningServer

ROOT = Path(__file__).parents[2]
SUITES = ("sql_nan", "scan_task", "change_task", "column_pages", "arrow_filters")
OF_A_DIRECTORY = (
    "an_order_ends_with_its_index",  # writes
    # A mirror has no rows in the log, so no task has them in hand.
    "each_level_has_its_task",
    "columns_and_filters_change_nothing_about_that",
    "tasks_of_any_range_give_the_feed",
)


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_of_queries_passes_at_a_url(
    server: RunningServer, suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILTSTONE_TESTS_URL", new_url(server))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.reach.at_a_url"]
    left = " and ".join(f"not {name}" for name in OF_A_DIRECTORY)
    done = subprocess.run(
        [*command, f"tests/query/test_{suite}.py", "-k", left],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
