"""Decisions: the list of all ADRs, made of their headings, newest first."""

from __future__ import annotations

import re

from pages import tree
from pages.links import between, decisions

PLACE = "adr/index.md"
_TEXT = """# Decisions

Each page says what was decided, why, and what was given up. The newest win: a decision that another
one replaced says so at its top. Numbers that are missing were replaced as a whole.

| ADR | decision |
| ---: | --- |
"""
_HEADING = re.compile(r"^# (?:\d+)\. (.+)$", re.MULTILINE)


def page() -> str:
    """Return the list as a page."""
    lines = [_line(number, place) for number, place in sorted(decisions().items(), reverse=True)]
    return _TEXT + "".join(lines)


def _line(number: int, place: str) -> str:
    found = _HEADING.search((tree.ROOT / "docs" / place).read_text())
    assert found is not None, place
    return f"| {number} | [{found[1]}]({between(PLACE, place)}) |\n"
