"""The page of guarantees names tests that exist, and every defect under what it breaks."""

from __future__ import annotations

import re

import pytest

from proof.defects.planted import ROOT, every

PAGE = ROOT / "docs" / "guarantees.md"
SECTIONS = re.split(r"^## (\d+)\. ", PAGE.read_text(), flags=re.MULTILINE)[1:]
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
def test_the_suite_of_a_defect_is_one_that_checks_what_it_breaks(planted) -> None:
    files = {argument.partition("::")[0] for argument in planted.suite}
    checking = {name for number in planted.breaks for name in named(number, "Checked by")}
    assert files <= checking
