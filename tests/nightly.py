"""Nightly: which tests `make test` leaves to `make nightly`, because CI has 20 minutes.

`nightly.txt` has a line for each: the test without its parameters, and with how many of those it
is run by day all the same (none without a number). Behind a `#` stands what the line is about.
Whoever names a test by its node id gets it at any time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

IS_NIGHTLY = bool(os.environ.get("SILTSTONE_NIGHTLY"))
LIST = Path(__file__).with_name("nightly.txt")


def by_day() -> dict[str, int]:
    """Return the tests that are left to the night, and how many forms of each are run by day.

    Raises:
        ValueError: A line is not as the module says.
    """
    found: dict[str, int] = {}
    for line in LIST.read_text().splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, count = (*words, "0")[:2]
        if "::" not in name or len(words) > 2 or name in found:
            raise ValueError(f"{LIST.name}: {line!r} is no test, or stands there twice")
        found[name] = int(count)
    return found


def left(names: Iterable[str]) -> list[bool]:
    """Say of each test, in the order in which they are collected, whether it is left."""
    allowed, seen = by_day(), Counter[str]()
    found = []
    for name in names:
        plain = name.partition("[")[0]
        seen[plain] += 1
        found.append(plain in allowed and seen[plain] > allowed[plain])
    return found
