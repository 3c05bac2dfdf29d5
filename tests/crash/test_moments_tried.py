"""A run tries a fixed number of the moments of a scenario, and not only those that are alike."""

from __future__ import annotations

import random

import pytest

from tests.crash import moments
from tests.crash.moments import some
from tests.crash.store_life import Shot, tried
from tests.support.simulated_files import SimFiles

pytestmark = pytest.mark.skipif(moments.IS_LONG, reason="SILTSTONE_CRASH=all tries each moment")


def shots(count: int, failpoints: dict[int, str]) -> list[Shot]:
    """Return moments behind a write each, some behind a failpoint, too."""
    files = SimFiles()
    kinds = [{"write wal", *([failpoints[n]] if n in failpoints else [])} for n in range(count)]
    return [Shot(str(n), files, 0, 0, frozenset(kind)) for n, kind in enumerate(kinds)]


@pytest.mark.parametrize("count", [0, 1, 8, 9, 500])
def test_so_many_moments_are_tried_or_all(count: int) -> None:
    found = tried(shots(count, {}), random.Random(1), 8)
    assert len(found) == min(count, moments.most_of(8))
    assert len({shot.label for shot in found}) == len(found)
    assert len(some(range(count), random.Random(1), 8)) == min(count, moments.most_of(8))


def test_moments_behind_failpoints_and_the_last_one_are_among_them() -> None:
    every = shots(900, {311: "merge.published", 312: "merge.planned", 640: "merge.published"})
    found = [shot.label for shot in tried(every, random.Random(1), 8)]
    assert {"0", "311", "312", "899"} <= set(found)
    assert found == sorted(found, key=int), "in the order in which they were"


def test_many_failpoints_leave_a_third_to_moments_between_them() -> None:
    every = shots(900, {n: f"point {n}" for n in range(100)})
    found = [int(shot.label) for shot in tried(every, random.Random(1), 24)]
    assert sum(n >= 100 for n in found) >= moments.most_of(24) // 3 - 4


def test_another_seed_tries_other_moments_and_the_same_one_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = shots(900, {})

    def labels(seed: str) -> list[str]:
        monkeypatch.setattr(moments, "SEED", seed)
        return [shot.label for shot in tried(every, moments.chance("a test"), 8)]

    assert labels("one") == labels("one") != labels("two")
