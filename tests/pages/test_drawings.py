"""A drawing is told in words, is read in light and in dark, and asks no other host."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pages.tree import ROOT

DRAWINGS = sorted((ROOT / "docs" / "drawings").glob("*.svg"))
NAMES = [path.name for path in DRAWINGS]
SVG = "{http://www.w3.org/2000/svg}"


def test_there_is_one_of_a_write_of_a_read_and_of_a_race_with_words_beside_it() -> None:
    page = (ROOT / "docs" / "life.md").read_text()
    shown = dict(re.findall(r"!\[([^\]]+)\]\(drawings/([\w.]+)\)", page))
    assert sorted(shown.values()) == NAMES == ["race.svg", "read.svg", "write.svg"]
    assert min(map(len, shown)) > 80


@pytest.mark.parametrize("path", DRAWINGS, ids=NAMES)
def test_a_drawing_has_a_title_and_words(path: Path) -> None:
    root = ET.parse(path).getroot()
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "title words"
    told = [root.find(f"{SVG}{name}") for name in ("title", "desc")]
    assert [each is not None and bool(each.text) for each in told] == [True, True]


@pytest.mark.parametrize("path", DRAWINGS, ids=NAMES)
def test_a_drawing_has_its_own_ground_and_colours_for_both_schemes(path: Path) -> None:
    text = path.read_text()
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    for kind in ("ground", "box", "point", "line", "tip"):
        assert f".{kind} {{" in light
        assert f".{kind} {{" in dark
    used = set(re.findall(r'class="([\w ]+)"', text))
    named = {name for each in used for name in each.split()}
    assert named <= set(re.findall(r"\.(\w+) \{", light))


@pytest.mark.parametrize("path", DRAWINGS, ids=NAMES)
def test_a_drawing_asks_no_host_and_runs_nothing(path: Path) -> None:
    text = path.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "//" not in text
    assert "<script" not in text
    assert "href" not in text
