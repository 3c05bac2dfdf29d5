"""Guarantees: the table of tests at the end of docs/guarantees.md, written anew.

`guarantees.toml` beside this module says which test files check which guarantee; the patches of
`proof/defects` say which of these files catch which defect.

    python -m proof.guarantees      writes the table into the page
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from proof.defects.planted import ROOT, every

PAGE = ROOT / "docs" / "guarantees.md"
HEADING = "## The tests\n"
_HEAD = """
Each row is a test file that checks a guarantee (0: what other programs may do), and the [planted
defects](defects.md) that this file has to catch. Written by `python -m proof.guarantees` from
`proof/guarantees.toml` and the patches in `proof/defects`.

| guarantee | tests | defects that they catch |
| ---: | --- | --- |
"""


def suites() -> dict[int, list[str]]:
    """Return the test files of each guarantee, by its number."""
    text = Path(__file__).with_suffix(".toml").read_text()
    return {int(number): files for number, files in tomllib.loads(text).items()}


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
    """Return the page with the table of these test files in place of its own."""
    defects = caught()
    rows = [
        f"| {number} | `{name}` | {_cell(defects.get((number, name), set()))} |\n"
        for number, names in sorted(tests.items())
        for name in sorted(names)
    ]
    prose, heading, _ = page.partition(HEADING)
    return prose + heading + _HEAD + "".join(rows)


def _cell(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), suites()))
