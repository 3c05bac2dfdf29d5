"""The page of guarantees names every test file that checks one, and the defects that it catches.

A defect is caught by the suite of the first guarantee that it breaks, not by that of another one.
"""

from __future__ import annotations

import re

import pytest

from proof.defects.planted import ROOT, Planted, every
from proof.guarantees import PAGE, caught, suites, written

SUITES = suites()


def test_the_page_has_fourteen_guarantees_and_each_has_tests() -> None:
    numbers = re.findall(r"^## (\d+)\. ", PAGE.read_text(), flags=re.MULTILINE)
    assert [*map(int, numbers)] == [*range(1, 15)]
    assert sorted(SUITES) == [*range(15)]
    assert all(SUITES.values())


def test_the_table_of_the_page_is_what_python_m_proof_guarantees_writes() -> None:
    page = PAGE.read_text()
    assert page == written(page, SUITES)


def test_a_page_without_a_test_file_gets_it_back() -> None:
    page = PAGE.read_text()
    name = SUITES[2][0]
    lacking = "".join(line for line in page.splitlines(keepends=True) if name not in line)
    assert lacking != page
    assert written(lacking, SUITES) == page


@pytest.mark.parametrize("number", SUITES)
def test_the_tests_of_a_guarantee_exist(number: int) -> None:
    assert [name for name in SUITES[number] if not (ROOT / name).is_file()] == []
    assert len(SUITES[number]) == len({*SUITES[number]})


@pytest.mark.parametrize("planted", every(), ids=lambda planted: planted.name)
def test_a_defect_is_caught_by_the_own_suite_of_what_it_breaks(planted: Planted) -> None:
    files = {argument.partition("::")[0] for argument in planted.suite}
    assert files <= {*SUITES[planted.breaks[0]]}


def test_a_defect_stands_in_the_row_of_the_file_that_catches_it() -> None:
    rows = re.findall(r"^\| (\d+) \| `([^`]+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    shown = {(int(number), name): {*re.findall(r"`([^`]+)`", cell)} for number, name, cell in rows}
    assert {place: names for place, names in shown.items() if names} == caught()


def test_every_guarantee_has_a_defect() -> None:
    assert {number for planted in every() for number in planted.breaks} == {*range(1, 15)}
