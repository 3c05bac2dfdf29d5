"""Moments: which of the moments of a scenario a run tries.

A fixed number of each: first ones after a kind of step or a failpoint, two thirds of the number
at most, and others evenly. Which ones follows from the commit, so that everybody who tries a commit
tries the same, and the next commit tries others; `SILTSTONE_SEED` takes the place of the commit.
`make nightly` tries five times as many, `SILTSTONE_CRASH=all` each with every disk that it may
leave (ADR 85).
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Collection, Hashable, Sequence
from typing import TypeVar

from tests.nightly import IS_NIGHTLY, SEED

IS_LONG = os.environ.get("SILTSTONE_CRASH") == "all"
"""Every image of every step, and every fault; minutes. Else a sample."""
MOMENTS = 24
_NIGHTLY_TIMES = 5
_T = TypeVar("_T")


def chance(name: object) -> random.Random:
    """Return the chance of one test; `name` tells it from others."""
    return random.Random(f"{SEED} {name}")


def some(every: Sequence[_T], rng: random.Random, most: int = MOMENTS) -> list[_T]:
    """Return at most so many, each from a stretch of its own."""
    if IS_LONG or len(every) <= most_of(most):
        return list(every)
    return spread(every, rng, most_of(most))


def spread(every: Sequence[_T], rng: random.Random, count: int) -> list[_T]:
    """Return so many, each from a stretch of its own; none for a number below 1."""
    edges = [n * len(every) // max(count, 1) for n in range(count + 1)]
    return [every[rng.randrange(a, b)] for a, b in itertools.pairwise(edges)]


def most_of(most: int) -> int:
    """Return how many this run takes where a short one takes `most`."""
    return most * _NIGHTLY_TIMES if IS_NIGHTLY else most


def chosen(kinds: Sequence[Collection[Hashable]], rng: random.Random, most: int) -> list[int]:
    """Return which moments are tried of those behind `kinds`, at most so many, in their order.

    Firsts of a kind, others evenly, and the last.
    """
    if IS_LONG or len(kinds) <= most_of(most):
        return list(range(len(kinds)))
    first = firsts(kinds)
    kept = {len(kinds) - 1, *rng.sample(first, min(len(first), most_of(most) * 2 // 3))}
    rest = [at for at in range(len(kinds)) if at not in kept]
    kept.update(spread(rest, rng, most_of(most) - len(kept)))
    return sorted(kept)


def firsts(kinds: Sequence[Collection[Hashable]]) -> list[int]:
    """Return where each kind is met first, in order."""
    seen: set[Hashable] = set()
    found = []
    for at, those in enumerate(kinds):
        if not seen.issuperset(those):
            found.append(at)
        seen.update(those)
    return found
