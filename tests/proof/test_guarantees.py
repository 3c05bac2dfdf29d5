"""The page of guarantees names tests that exist, and every defect under what it breaks.

A defect is caught by the suite of the first guarantee that it breaks, not by that of another one.
"""

from __future__ import annotations

import re

import pytest

from proof.defects.planted import ROOT, every

PAGE = ROOT / "docs" / "guarantees.md"
NUMBERED, _, OWN = PAGE.read_text().partition("## What each guarantee's own suite catches\n")
SECTIONS = re.split(r"^## (\d+)\. ", NUMBERED, flags=re.MULTILINE)[1:]
GUARANTEES = dict(zip(map(int, SECTIONS[::2]), SECTIONS[1::2], strict=True))


def named(number: int, field: str) -> list[str]:
    """Return what stands in backticks in one field of one guarantee."""
    (found,) = re.findall(
        rf"^- \*\*{field}\*\*(.*?)(?=^- |\Z)", GUARANTEES[number], re.MULTILINE | re.DOTALL
    )
    return re.findall(r"`([^`]+)`", found)


def test_there_are_fourteen() -> None:
    assert [*GUARANTEES] == [*range(1, 15)]


@pytest.mark.parametrize("number", GUARANTEES)
def test_the_tests_of_a_guarantee_exist(number: int) -> None:
    tests = [name for name in named(number, "Checked by") if name.startswith("tests/")]
    assert tests
    assert [name for name in tests if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("number", GUARANTEES)
def test_the_power_of_a_guarantees_tests_is_in_every_defect_that_breaks_it(number: int) -> None:
    breaking = [planted for planted in every() if number in planted.breaks]
    assert named(number, "Power") == sorted(planted.name for planted in breaking)


@pytest.mark.parametrize("planted", every(), ids=lambda planted: planted.name)
def test_a_defect_is_caught_by_the_own_suite_of_what_it_breaks(planted) -> None:
    files = {argument.partition("::")[0] for argument in planted.suite}
    assert files <= set(named(planted.breaks[0], "Checked by"))


def rows_of_own_suites() -> list[str]:
    """Return the table: which file of which guarantee's suite has to catch which defects."""
    found: dict[tuple[int, str], list[str]] = {}
    for planted in every():
        for argument in planted.suite:
            key = planted.breaks[0], argument.partition("::")[0]
            found.setdefault(key, []).append(f"`{planted.name}`")
    return [
        f"| {number} | `{name}` | {', '.join(sorted(set(defects)))} |"
        for (number, name), defects in sorted(found.items())
    ]


def test_the_table_of_own_suites_is_what_the_defects_say() -> None:
    assert [line for line in OWN.splitlines() if re.match(r"\| \d", line)] == rows_of_own_suites()


def test_every_guarantee_has_a_defect_that_its_own_suite_catches() -> None:
    own = {number for planted in every() for number in planted.breaks}
    assert own == {*GUARANTEES}


def test_what_the_section_of_own_suites_names_is_there() -> None:
    names = [name for name in re.findall(r"`([^`]+)`", OWN) if name.startswith(("tests/", "src/"))]
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []
