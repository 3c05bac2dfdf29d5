"""Suites of queries give at a URL what they give in a directory. A file of the night.

Of `tests/query` these are the suites whose tests share a store. In the others each test writes a
store of its own; a store at a URL is never written.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reach.conftest import new_url
from tests.support.bucket_servers import RunningServer

ROOT = Path(__file__).parents[2]
QUERIES = ROOT / "tests" / "query"
WRITES = "it writes"
OWNER = "it asks the owner of the store to serve others"
IN_HAND = "it wants tasks with rows of the log in hand, and a mirror has no log"
SUITES: dict[str, dict[str, str]] = {
    "arrow_filters": {},
    "change_task": {},
    "column_pages": {"test_an_order_ends_with_its_index": WRITES},
    "filter_doors": {
        "test_a_transaction_filters_with_its_own_writes_on_top": WRITES,
        "test_a_delete_takes_the_rows_that_a_scan_finds": WRITES,
        "test_a_server_and_a_store_that_joined_answer_as_a_scan": OWNER,
    },
    "filter_matrix": {},
    "filter_properties": {},
    "key_filters": {
        "test_a_transaction_finds_its_own_rows_by_the_keys_that_a_filter_names": WRITES,
        "test_a_scan_of_keys_still_conflicts_as_a_scan": WRITES,
        "test_a_range_conflicts_with_what_is_written_within_it": WRITES,
    },
    "order_arguments": {
        "test_the_high_end_is_not_in_a_range_and_the_highest_key_is_in_an_open_one": WRITES,
    },
    "scan_task": {
        "test_together_they_give_every_row_once_and_each_level_has_its_task": IN_HAND,
    },
    "sql_nan": {},
    "sql_pages": {"test_a_transaction_reads_pages_with_its_own_rows": WRITES},
    "sql_search": {
        "test_the_past_is_searched_as_it_was": WRITES,
        "test_a_joined_process_and_a_reader_ask_the_same": OWNER,
    },
}
"""Suites, and of each the tests that are left out, with the reason."""
LEFT_OUT = {
    "filter_writes": WRITES,
    "sql_memory": "it measures what a statement holds of a directory's files",
}
"""Suites with a shared store that are left out, with the reason."""


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_of_queries_passes_at_a_url(
    server: RunningServer, suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILTSTONE_TESTS_URL", new_url(server))
    path = f"tests/query/test_{suite}.py"
    left = [f"--deselect={path}::{name}" for name in SUITES[suite]]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.reach.at_a_url", path, *left]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


def test_each_suite_that_shares_a_store_is_run_or_left_out_with_a_reason() -> None:
    shared = {path.stem.removeprefix("test_") for path in QUERIES.glob("test_*.py") if shares(path)}
    assert shared == SUITES.keys() | LEFT_OUT.keys()
    for suite, left in SUITES.items():
        assert left.keys() <= functions_of(QUERIES / f"test_{suite}.py").keys()


def functions_of(path: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def shares(path: Path) -> bool:
    """Say whether tests of a suite have a store in common: their fixture `db`."""
    functions = functions_of(path)
    own = functions.get("db")
    if own is not None:
        return any("scope=" in ast.unparse(each) for each in own.decorator_list)
    asking = (
        each for name, each in functions.items() if name.startswith("test_") or each.decorator_list
    )
    return any("db" in [arg.arg for arg in each.args.args] for each in asking)
