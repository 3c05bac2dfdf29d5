"""Guarantees: the lists of tests at the end of docs/guarantees.md, written anew.

`guarantees.toml` beside this module says which test files check which guarantee; the patches of
`proof/defects` say which of these files catch which defect. Behind each "How we know" of the page
stands how many there are, as a link to the list.

    python -m proof.guarantees      writes the lists and the links into the page
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from proof.defects.planted import ROOT, every

PAGE = ROOT / "docs" / "guarantees.md"
HEADING = "## The tests\n"
_HEAD = """
The files of tests that check each guarantee, and the [planted defects](defects.md) that each file
has to catch. Written by `python -m proof.guarantees` from `proof/guarantees.toml` and the patches
in `proof/defects`.
"""
_KNOWN = re.compile(r"^- \*\*How we know(?::\*\*|\*\* \([^\n]*?\):)", re.MULTILINE)
_NUMBERED = re.compile(r"^## (?:(\d+)\. )?", re.MULTILINE)


def suites() -> dict[int, list[str]]:
    """Return the test files of each guarantee, by its number."""
    text = Path(__file__).with_suffix(".toml").read_text()
    return {int(number): files for number, files in tomllib.loads(text).items()}


_Caught: TypeAlias = Mapping[tuple[int, str], set[str]]


def caught() -> dict[tuple[int, str], set[str]]:
    """Return the names of the defects that a test file of a guarantee has to catch.

    A defect belongs to the first guarantee that it breaks.
    """
    found: dict[tuple[int, str], set[str]] = {}
    for planted in every():
        for argument in planted.suite:
            key = planted.breaks[0], argument.partition("::")[0]
            found.setdefault(key, set()).add(planted.name)
    return found


def written(page: str, tests: Mapping[int, list[str]]) -> str:
    """Return the page with the lists of these test files in place of its own, and links to them."""
    defects = caught()
    prose, heading, _ = page.partition(HEADING)
    lists = [_list(number, sorted(names), defects) for number, names in sorted(tests.items())]
    return _counted(prose, tests, defects) + heading + _HEAD + "".join(lists)


def _list(number: int, names: list[str], defects: _Caught) -> str:
    lines = [f"- [{x}](../{x}){_catches(defects.get((number, x), set()))}\n" for x in names]
    return f"\n### Tests of {number or 'what others may do'}\n\n{''.join(lines)}"


def _catches(names: set[str]) -> str:
    return f": {', '.join(f'`{name}`' for name in sorted(names))}" if names else ""


def _counted(prose: str, tests: Mapping[int, list[str]], defects: _Caught) -> str:
    """Return the prose with the number of tests behind each "How we know".

    A section that has no number is that of what others may do.
    """
    starts = [*_NUMBERED.finditer(prose)]
    ends = [found.start() for found in starts[1:]] + [len(prose)]
    parts = [prose[: starts[0].start()]]
    for found, end in zip(starts, ends, strict=True):
        told = _told(int(found[1] or 0), tests, defects)
        parts.append(_KNOWN.sub(f"- **How we know** ({told}):", prose[found.start() : end]))
    return "".join(parts)


def _told(number: int, tests: Mapping[int, list[str]], defects: _Caught) -> str:
    anchor = f"#tests-of-{number or 'what-others-may-do'}"
    planted = {name for (of, _), names in defects.items() if of == number for name in names}
    plural = "" if len(planted) == 1 else "s"
    catch = f", which catch {len(planted)} planted defect{plural}" if planted else ""
    return f"[{len(tests[number])} files of tests]({anchor}){catch}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), suites()))
