"""The page of the matrix is what the cases say: each class, each refusal, each cause."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from tests.clients import matrix_page
from tests.conformance.cases import CASES
from tests.conformance.page import CAUSES, page

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent


def import_cases() -> None:
    for path in FOLDER.glob("test_*.py"):
        importlib.import_module(f"tests.conformance.{path.stem}")


def test_the_page_is_what_the_cases_say() -> None:
    import_cases()
    made = page()
    if os.environ.get("SILTSTONE_WRITE_MATRIX"):
        matrix_page.write(matrix_page.SUITES, made)
    assert matrix_page.read(matrix_page.SUITES) == made


def test_every_cause_has_a_case_or_a_test() -> None:
    import_cases()
    covered = {number for each in CASES.values() for number in each.causes}
    assert covered <= set(CAUSES)
    assert {number for number, cause in CAUSES.items() if not cause.checks} <= covered
    checks = [check for cause in CAUSES.values() for check in cause.checks]
    assert [check for check in checks if not (ROOT / check).exists()] == []


def test_no_two_cases_say_the_same() -> None:
    import_cases()
    sentences = [each.sentence for each in CASES.values()]
    assert [each for each in sentences if sentences.count(each) > 1] == []
