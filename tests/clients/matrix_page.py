"""Matrix page: `docs/client-matrix.md`, two parts that two suites write."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "client-matrix.md"
OPERATIONS, SUITES = 0, 1
_SECOND = "\n## What the suites of "


def read(part: int) -> str:
    """Return one part of the page, as it is written by `write`."""
    first, _, second = PAGE.read_text().partition(_SECOND)
    return first if part == OPERATIONS else _SECOND.removeprefix("\n") + second


def write(part: int, text: str) -> None:
    """Replace one part of the page."""
    parts = [read(OPERATIONS), read(SUITES)]
    parts[part] = text
    PAGE.write_text("\n".join(parts))
