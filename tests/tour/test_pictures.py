"""The pictures of the pages are there, are small, and a screen is drawn with its colors."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pyte

from tests.cli.terminal import Screen
from tests.test_documents import ROOT
from tests.tour.drawn import svg

BYTES_MAX = 150_000
PICTURES = ROOT / "docs" / "pictures"


def test_each_picture_is_small_and_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = set(
        re.findall(
            r"!\[[^]]+\]\(\S*?pictures/([\w.-]+)\)", "".join(path.read_text() for path in pages)
        )
    )
    kept = {path.name: path.stat().st_size for path in PICTURES.iterdir()}
    assert named == set(kept)
    assert {name: size for name, size in kept.items() if size > BYTES_MAX} == {}


def test_a_screen_is_drawn_with_its_colors_in_its_columns() -> None:
    screen = Screen(40, 4)
    pyte.Stream(screen).feed("$ a <b>\r\n  \x1b[1mrows\x1b[0m   \x1b[32mgreen\x1b[0m\r\n> ")
    drawn = ET.fromstring(svg(screen.cells(), "a & b"))
    texts = {each.text: each for each in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert set(texts) == {"a & b", "$ a <b>", "rows", "green", ">"}
    assert texts["rows"].get("class") == "bold"
    assert texts["green"].get("class") == "green"
    left, right = (float(texts[name].get("x", "")) for name in ("rows", "green"))
    assert right - left == 7 * 8
