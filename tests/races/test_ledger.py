"""The ledger: no failpoint without a test that stops a process there."""

from __future__ import annotations

import importlib
from pathlib import Path

from siltstone.failpoints import CATALOG, Failpoint, Point
from tests.races import ledger

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "alter.after_values": "tests/maintenance/test_filled_columns_kill.py",
    "aside.after_link": "tests/namespace/test_external_versions.py",
    "aside.after_unlink": "tests/namespace/test_external_versions.py",
    "end.after_log": "tests/crash/test_end_kill.py",
    "end.after_merge": "tests/crash/test_end_kill.py",
    "end.after_optimize": "tests/crash/test_end_kill.py",
    "end.after_vacuum": "tests/crash/test_end_kill.py",
    "import.after_commit": "tests/crash/test_import_kill.py",
    "name.after_adoption": "tests/crash/test_adoption_kill.py",
    "name.after_link": "tests/crash/test_kept_kill.py",
    "own.after_claim": "tests/crash/test_takeover_kill.py",
    "own.after_mark": "tests/crash/test_takeover_kill.py",
    "own.after_replay": "tests/crash/test_takeover_kill.py",
    "own.after_segment": "tests/crash/test_takeover_kill.py",
}
"""Points of a process that a test of another suite kills."""


def test_every_failpoint_is_crossed_by_a_test_that_kills_a_process_there() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(f"tests.races.{path.stem}")
    elsewhere = {point.label for point in CATALOG if point.label in ELSEWHERE}
    killed = {point.label for point in ledger.killed} | elsewhere
    assert {point.label for point in CATALOG} - killed == set()
    names = {each.label: name for name, each in vars(Failpoint).items() if isinstance(each, Point)}
    for label, path in ELSEWHERE.items():
        text = (ROOT / path).read_text()
        assert f'"{label}=kill' in text or f"    Failpoint.{names[label]},\n" in text
