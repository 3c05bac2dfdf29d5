"""Nightly: which tests `make test` leaves to `make nightly`, because CI is to take 20 minutes on
two cores (ADR 90).

`nightly.txt` has a line for each: the test without its parameters, and behind it how many of its
forms are run by day all the same: `2` the first two, `1/3` each third one, other ones with each
commit; none where nothing is said. A line may name a file instead: what it says is then true of all
its tests that have no line. Behind a `#` stands what the lines are about.

A test that caught a planted defect is never left, whatever its line says; nor is one of a file that
the command line names. Tests that are long ask `by_day` how long they are.
"""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

_ALL = ("SILTSTONE_RACES", "SILTSTONE_CRASH")
_T = TypeVar("_T")
IS_NIGHTLY = bool(os.environ.get("SILTSTONE_NIGHTLY")) or "all" in map(os.environ.get, _ALL)
"""Whether nothing is left: also where all races or crashes are wanted."""
LIST = Path(__file__).with_name("nightly.txt")
DEFECTS = Path(__file__).parents[1] / "proof" / "defects.json"
"""What is known of planted defects: which test caught each."""


def _commit() -> str:
    """Return the commit of this checkout; empty where git knows none."""
    git = ["git", "-C", str(LIST.parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


SEED = os.environ.get("SILTSTONE_SEED", "") or _commit()


def by_day(short: _T, long: _T) -> _T:
    """Return the short form of what a test does, and at night the long one."""
    return long if IS_NIGHTLY else short


def listed() -> dict[str, tuple[int, int]]:
    """Return the tests and files that are left to the night, and which forms are run by day.

    They are the first of so many, (2, 1), or one of so many, (1, 3).

    Raises:
        ValueError: A line is not as the module says.
    """
    found: dict[str, tuple[int, int]] = {}
    for line in LIST.read_text().splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, count = (*words, "0")[:2]
        if ".py" not in name or len(words) > 2 or name in found:
            raise ValueError(f"{LIST.name}: {line!r} is no test, or stands there twice")
        first, _, of = count.partition("/")
        found[name] = int(first), int(of or 1)
    return found


@functools.cache
def guards() -> frozenset[str]:
    """Return the tests by which planted defects are noticed, with their parameters."""
    return frozenset(defect["caught_by"] for defect in json.loads(DEFECTS.read_text()))


def left(names: Iterable[str]) -> list[bool]:
    """Say of each test, in the order in which they are collected, whether it is left."""
    lines, seen = listed(), Counter[str]()
    found = []
    for name in names:
        plain = name.partition("[")[0]
        line = plain if plain in lines else plain.partition("::")[0]
        is_run = line not in lines or _is_by_day(line, seen[line], *lines[line])
        found.append(not is_run and name not in guards())
        seen[line] += 1
    return found


def _is_by_day(name: str, number: int, first: int, of: int) -> bool:
    if of == 1:
        return number < first
    return number % of == random.Random(f"{SEED} {name}").randrange(of)
