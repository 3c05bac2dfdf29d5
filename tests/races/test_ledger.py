"""The ledger: no failpoint without a test that stops a process there."""

from __future__ import annotations

import importlib
from pathlib import Path

from siltstone.failpoints import CATALOG
from tests.races import ledger

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "aside.after_link": "tests/namespace/test_external_versions.py",
    "aside.after_unlink": "tests/namespace/test_external_versions.py",
    "import.after_commit": "tests/crash/test_import_kill.py",
    "name.after_adoption": "tests/crash/test_adoption_kill.py",
    "name.after_link": "tests/crash/test_kept_kill.py",
}
"""Points of a process that a test of another suite kills."""


def test_every_failpoint_is_crossed_by_a_test_that_kills_a_process_there() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"tests.races.{path.stem}")
    elsewhere = {point.label for point in CATALOG if point.label in ELSEWHERE}
    killed = {point.label for point in ledger.killed} | elsewhere
    assert {point.label for point in CATALOG} - killed == set()
    for label, path in ELSEWHERE.items():
        assert f'"{label}=kill' in (ROOT / path).read_text()
