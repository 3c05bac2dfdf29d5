"""Each anomaly of Berenson 1995 and Fekete 2004 is prevented, or shown where isolation allows it.

Berenson et al., A Critique of ANSI SQL Isolation Levels, SIGMOD 1995; Fekete, O'Neil, O'Neil, A
Read-Only Transaction Anomaly Under Snapshot Isolation, SIGMOD Record 2004.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.isolation.script import BY_METHODS, IN_SQL, Verbs, mismatch
from tests.isolation.stores import with_two_rows

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("verbs", [BY_METHODS, IN_SQL], ids=["methods", "sql"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_what_it_expects(script: Path, verbs: Verbs) -> None:
    db = with_two_rows()
    assert mismatch(script, db, verbs) is None
    db.close()


def test_there_is_a_script_for_each_anomaly() -> None:
    anomalies = {path.stem.split("-")[0] for path in SCRIPTS}
    assert anomalies >= {"p0", "p1", "p2", "p3", "p4", "a5a", "a5b", "fekete"}


def test_a_script_that_expects_something_else_is_a_mismatch(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("t1: begin\nt1: get 1\n---\nt1: get 1 -> 1=11\n")
    assert mismatch(wrong, with_two_rows()) is not None
