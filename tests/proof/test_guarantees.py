"""The page of guarantees links every test file that checks one, and names what it catches.

A defect is caught by the suite of the first guarantee that it breaks, not by that of another one.
"""

from __future__ import annotations

import re

import pytest

from proof.defects.planted import ROOT, Planted, every
from proof.guarantees import HEADING, PAGE, caught, suites, written

SUITES = suites()


def test_the_page_has_fourteen_guarantees_and_each_has_tests() -> None:
    numbers = re.findall(r"^## (\d+)\. ", PAGE.read_text(), flags=re.MULTILINE)
    assert [*map(int, numbers)] == [*range(1, 15)]
    assert sorted(SUITES) == [*range(15)]
    assert all(SUITES.values())


def test_the_lists_of_the_page_are_what_python_m_proof_guarantees_writes() -> None:
    page = PAGE.read_text()
    assert page == written(page, SUITES)


def test_a_page_without_a_test_file_gets_it_back() -> None:
    page = PAGE.read_text()
    name = SUITES[2][0]
    lacking = "".join(line for line in page.splitlines(keepends=True) if name not in line)
    lacking = re.sub(r"\[\d+ files", "[no files", lacking)
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


def lists_of(page: str) -> dict[int, dict[str, set[str]]]:
    """Return the defects of each test file, by the guarantee and the path that is linked."""
    _, _, lists = page.partition(HEADING)
    found: dict[int, dict[str, set[str]]] = {}
    for part in lists.split("\n### Tests of ")[1:]:
        title, _, lines = part.partition("\n")
        rows = re.findall(r"^- \[(.+)\]\(\.\./\1\)(.*)$", lines, re.MULTILINE)
        files = {name: {*re.findall(r"`([^`]+)`", rest)} for name, rest in rows}
        found[int(title) if title.isdigit() else 0] = files
    return found


def test_a_defect_stands_behind_the_file_that_catches_it() -> None:
    lists = lists_of(PAGE.read_text())
    assert {number: [*files] for number, files in lists.items()} == {
        number: sorted(names) for number, names in SUITES.items()
    }
    shown = {(number, name): of for number, files in lists.items() for name, of in files.items()}
    assert {place: names for place, names in shown.items() if names} == caught()


def test_each_guarantee_says_how_we_know_and_leads_to_its_tests() -> None:
    prose, _, _ = PAGE.read_text().partition(HEADING)
    _, *sections = re.split(r"^## ", prose, flags=re.MULTILINE)
    for section in sections:
        number = int(section.partition(".")[0]) if section[0].isdigit() else 0
        anchor = f"#tests-of-{number or 'what-others-may-do'}"
        assert (
            section.count(f"- **How we know** ([{len(SUITES[number])} files of tests]({anchor})")
            == 1
        )


def test_every_guarantee_has_a_defect() -> None:
    assert {number for planted in every() for number in planted.breaks} == {*range(1, 15)}
