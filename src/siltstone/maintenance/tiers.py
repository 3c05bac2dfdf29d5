"""Tiers: which adjacent parts of a dataset become one, so that no row is rewritten often. Pure.

By tiers, a part joins the ones after it when it has at most `TIER_RATIO` times their rows. So each
rewrite of a row makes its part larger by half or more: a row that ends up in a part of n rows is
rewritten at most log(n) / log(1.5) times, however small the new parts are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from siltstone.storage.tables.values import Span

TIER_RATIO = 2


def small_runs(spans: Sequence[Span], target_rows: int) -> Iterator[Sequence[Span]]:
    """Yield runs of adjacent small parts: each has below half of `target_rows`."""
    for is_small, run in groupby(spans, lambda span: 2 * (span[1] - span[0]) < target_rows):
        if is_small:
            yield list(run)


def tiers(run: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """Cut a run, from its end, before each part that is too large for the parts after it."""
    end = len(run)
    found: list[Sequence[Span]] = []
    for index in range(len(run) - 1, -1, -1):
        behind = run[end - 1][1] - run[index][1]
        if behind and run[index][1] - run[index][0] > TIER_RATIO * behind:
            found.append(run[index + 1 : end])
            end = index + 1
    yield run[:end]
    yield from reversed(found)


def filled(run: Sequence[Span], is_full: Callable[[int, int], bool]) -> Iterator[Sequence[Span]]:
    """Cut a run into the groups to join; a part alone stays as it is.

    `is_full(parts, rows)` ends a group. A result is never small again unless there was nothing
    more to add.
    """
    group: list[Span] = []
    for span in run:
        group.append(span)
        if len(group) > 1 and is_full(len(group), span[1] - group[0][0]):
            yield group
            group = []
    if len(group) > 1:
        yield group
