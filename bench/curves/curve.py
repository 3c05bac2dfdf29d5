"""Curve: what siltstone does as one thing grows, point by point, within a limit of time.

What a run found, as `bench.kept` keeps it:

    {name: {"points": [{"x": number, metric: value, ..}, ..],
            "left_out": {x: why}, "error": text, if a point failed}}
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bench.workload import Metrics

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much: seconds of one measurement, seconds of a curve, and the highest of its points."""

    seconds: float
    limit_s: float
    x_max: int | None = None


class Curve(Protocol):
    """One thing that grows. `measure` is called with rising `x`, once each, then `close`."""

    name: ClassVar[str]
    title: ClassVar[str]
    x: ClassVar[str]
    points: ClassVar[tuple[int, ...]]
    x_usual: ClassVar[int]  # the highest point, if none is asked for
    s_each: ClassVar[float]  # about what one more of x takes an idle machine, in seconds
    drawn: ClassVar[tuple[str, ...]]  # metrics in one unit

    def __init__(self, folder: Path, seconds: float) -> None: ...

    def measure(self, x: int) -> Metrics: ...

    def close(self) -> None: ...


def follow(kind: type[Curve], folder: Path, bounds: Bounds, say: Say) -> dict[str, Any]:
    """Measure the points that the limit leaves room for; one that was begun is ended."""
    path = folder / kind.name
    path.mkdir(parents=True)
    found: dict[str, Any] = {"points": [], "left_out": {}}
    curve = kind(path, bounds.seconds)
    try:
        _measure(curve, bounds, found, say)
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"[:300]
    finally:
        curve.close()
        shutil.rmtree(path, ignore_errors=True)
    return found


def _measure(curve: Curve, bounds: Bounds, found: dict[str, Any], say: Say) -> None:
    begin = time.perf_counter()
    last = 0.0
    most = curve.x_usual if bounds.x_max is None else bounds.x_max
    points = [x for x in curve.points if x <= most]
    beyond = dict.fromkeys(map(str, curve.points[len(points) :]), f"this run ended at {most:,}")
    for index, x in enumerate(points):
        spent = time.perf_counter() - begin
        more = curve.s_each * (x - points[index - 1])
        if index and spent + last + more > bounds.limit_s:
            reason = f"no time: {spent:.0f} s were spent, the limit is {bounds.limit_s:.0f} s"
            found["left_out"] |= {str(each): reason for each in points[index:]}
            break
        say(f"{curve.name}: {x:,}")
        start = time.perf_counter()
        found["points"].append({"x": x, **curve.measure(x)})
        last = time.perf_counter() - start
    found["left_out"] |= beyond
