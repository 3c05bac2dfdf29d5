"""The lowest and the newest versions that siltstone allows of other packages are tried."""

from __future__ import annotations

import datetime as dt
import os
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
RANGES = [*PROJECT["dependencies"], *(line for name in EXTRAS for line in EXTRAS[name])]
TRIED = [*PROJECT["dependencies"], *EXTRAS["sql"], *EXTRAS["pandas"], *EXTRAS["polars"]]
TRIED += EXTRAS["server"]
LIST = (ROOT / "tests" / "ranges.txt").read_text()
END = os.environ.get("SILTSTONE_RANGES")
"""Which end `bin/ranges` tries; None: the versions are those of uv.lock."""


def numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def name_of(line: str) -> str:
    return re.split(r"[\[<>=]", line)[0]


def lowest(line: str) -> list[int]:
    return numbers(line.split(">=")[1].split(",", maxsplit=1)[0])


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("duckdb", ">=1.5.1,<3"), ("polars", ">=1.30,<3"), ("pyarrow", ">=25,<27")],
)
def test_two_lines_of_releases_are_allowed(name: str, allowed: str) -> None:
    assert f"{name}{allowed}" in RANGES


@pytest.mark.parametrize("line", RANGES, ids=name_of)
def test_each_range_begins_somewhere(line: str) -> None:
    assert ">=" in line or line.startswith("siltstone[")


@pytest.mark.parametrize("line", TRIED, ids=name_of)
def test_what_runs_is_within_its_range_and_at_the_end_that_is_tried(line: str) -> None:
    runs, first = numbers(version(name_of(line))), lowest(line)
    assert runs[: len(first)] >= first
    if END == "lowest":  # a newer Python may have no file of the very first one
        assert runs[0] == first[0]
    if "<" not in line:
        return
    *major, above = numbers(line.split("<")[1])
    assert runs[: len(major) + 1] < [*major, above]
    if END == "newest":
        assert runs[: len(major) + 1] == [*major, above - 1]


def test_ci_runs_the_tests_of_the_ranges() -> None:
    assert "make ranges" in (ROOT / ".ci/run").read_text()
    listed = re.findall(r"^tests/[^\s:]+", LIST, re.MULTILINE)
    assert len(listed) > 5
    assert all((ROOT / path).is_file() for path in listed)


def test_versions_are_those_of_one_moment_of_the_past() -> None:
    (as_of,) = re.findall(r"^as of (.*)$", LIST, re.MULTILINE)
    assert dt.datetime.fromisoformat(as_of) < dt.datetime.now(dt.UTC)
    lock = (ROOT / "Makefile").read_text().partition("\nlock:")[2].partition("\n\n")[0]
    assert "tests/ranges.txt" in lock
