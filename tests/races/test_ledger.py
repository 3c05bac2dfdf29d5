"""The ledger: no failpoint without a test that stops a process there."""

from __future__ import annotations

import importlib
from pathlib import Path

from siltstone.failpoints import CATALOG
from tests.races import ledger


def test_every_failpoint_is_crossed_by_a_test_that_kills_a_process_there() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"tests.races.{path.stem}")
    assert {point.label for point in CATALOG} - {point.label for point in ledger.killed} == set()
