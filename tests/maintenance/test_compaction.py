"""Which parts are written anew: all small ones, or by tiers, so that few rows are moved often."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from siltstone.maintenance.compaction.compaction import CONTENDED_MAX, Sizes, Span
from siltstone.maintenance.schedule.scheduler import HISTORY_PARTS_MAX, has_many_small
from siltstone.maintenance.tiers import TIER_RATIO
from tests.nightly import by_day

sizes = some.lists(some.integers(1, 1000), max_size=40)


def spans_of(rows: list[int]) -> list[Span]:
    found, start = [], 0
    for each in rows:
        found.append((start, start + each))
        start += each
    return found


def compacted(spans: list[Span], plan: Sizes) -> tuple[list[Span], int]:
    """Return the parts after an optimize, and how many rows it wrote."""
    groups = list(plan.groups(spans))
    gone = {span for group in groups for span in group}
    made = [(group[0][0], group[-1][1]) for group in groups]
    left = [span for span in spans if span not in gone]
    return sorted([*left, *made]), sum(end - first for first, end in made)


@given(sizes, some.integers(2, 500), some.booleans(), some.booleans())
@settings(max_examples=by_day(50, 200))
def test_groups_are_adjacent_small_parts(
    rows: list[int], target: int, by_tiers: bool, is_contended: bool
) -> None:
    spans = spans_of(rows)
    groups = list(Sizes(target, by_tiers, is_contended).groups(spans))
    chosen = [span for group in groups for span in group]
    assert chosen == [span for span in spans if span in set(chosen)]
    for group in groups:
        assert len(group) > 1
        assert all(a[1] == b[0] for a, b in pairwise(group))
        assert all(2 * (end - first) < target for first, end in group)
        assert group[-1][0] - group[0][0] < target


@given(sizes)
@settings(max_examples=by_day(50, 200))
def test_by_tiers_a_part_is_left_that_is_large_beside_those_behind_it(rows: list[int]) -> None:
    groups = list(Sizes(1 << 20, by_tiers=True).groups(spans_of(rows)))
    for group in groups:
        for part in group[:-1]:
            assert part[1] - part[0] <= TIER_RATIO * (group[-1][1] - part[1])


@given(sizes)
@settings(max_examples=by_day(30, 100))
def test_by_tiers_few_parts_are_left_in_the_end(rows: list[int]) -> None:
    spans, plan = spans_of(rows), Sizes(1 << 30, by_tiers=True)
    for _ in range(len(rows) + 1):
        spans, _written = compacted(spans, plan)
    assert all(a[1] - a[0] > TIER_RATIO * (b[1] - b[0]) for a, b in pairwise(spans))


def test_beside_a_writer_that_touches_parts_a_task_has_few_or_is_over_soon() -> None:
    spans = spans_of([16_000] * 200)
    calm, contended = (list(Sizes(is_contended=c).groups(spans)) for c in (False, True))
    assert max(len(group) for group in calm) == 66
    for group in contended[:-1]:
        rows = group[-1][1] - group[0][0]
        assert CONTENDED_MAX <= len(group) * rows < 1.2 * CONTENDED_MAX


@pytest.mark.parametrize("rows", [1, 100, 1_000])
def test_a_history_that_grows_by_small_parts_stays_of_few_and_is_seldom_written_anew(
    rows: int,
) -> None:
    """20,000 checkpoints; whenever the owner would, its history is optimized by tiers."""
    spans: list[Span] = []
    end, written = 0, 0
    for _ in range(20_000):
        spans.append((end, end + rows))
        end += rows
        if has_many_small(spans):
            spans, more = compacted(spans, Sizes(by_tiers=True))
            written += more
        assert len(spans) <= HISTORY_PARTS_MAX
    assert written <= 4 * end  # else 13 to 50 times, up to 100 rows each
