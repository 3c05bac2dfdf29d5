"""Ledger: which failpoints the tests cross. It is filled by what tests are parametrised with.

A test that kills or holds a process at a failpoint gets its points from here alone, so the ledger
cannot claim what no test does.

`SILTSTONE_RACES=all` runs every pair at every stage, and kills every operation at each of its
failpoints. Else a failpoint that several operations pass kills one of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest

from siltstone.failpoints import CATALOG, Failpoint, Point

IS_ALL = os.environ.get("SILTSTONE_RACES") == "all"

killed: set[Point] = set()
held: set[Point] = set()


def points_of(operation: str) -> list[Point]:
    """Return the points of one operation, in the order in which it passes them."""
    return [point for point in CATALOG if point.label.split(".")[0] == operation]


def elsewhere(*operations: str) -> list[Point]:
    """Return points that another test kills at too, and this one in a long run alone."""
    return [point for name in operations for point in points_of(name)] if IS_ALL else []


def killed_at(points: Iterable[Point]) -> Callable[[Callable], Callable]:
    """Run a test once for each point, as `point`: it kills a process there."""
    points = list(points)
    killed.update(points)
    return pytest.mark.parametrize("point", points, ids=[point.label for point in points])


def held_at(point: Point) -> Point:
    """Note that a test holds a process at `point`, and return it."""
    held.add(point)
    return point


STAGES = ("before plan", "after plan", "before publish", "after publish")


def stage_of(operation: str, stage: str) -> Point:
    """Return where an operation stands at a stage; what publishes by a frame has commit's."""
    where, step = stage.upper().split()
    is_frame = operation in {"attach", "ddl"}
    if is_frame and step == "PUBLISH":
        return getattr(Failpoint, f"COMMIT_{where}_FRAME")
    return getattr(Failpoint, f"{operation.upper()}_{where}_{step}")
