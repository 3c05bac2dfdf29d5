"""Plots: the drawings of the page, each made of what runs found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench import svg
from bench.curves.curve import Curve, series
from bench.results import OURS, Results
from bench.workload import Workload

# What is drawn of a workload: a panel for each metric.
_BARS = {
    "W1": ("1 threads", "8 threads", "64 threads"),
    "W2": ("1,000 rows", "100,000 rows"),
    "W3": ("1 threads", "8 threads", "8 threads hot"),
    "W4": ("recent", "cold"),
    "W5": ("clean narrow", "clean all columns", "overlaid all columns"),
    "W6": ("load",),
    "W7": ("scans/s kept", "rows/s kept"),
    "W8": ("seconds",),
    "W9": ("commits kept", "reads kept"),
}
_LESS = {"W8"}
_BEST, _WORST = 10.0, 0.1


def targets(rows: list[tuple[str, float, float | None, bool]]) -> str:
    """Draw how far above or below its bound each (name, bound, value, is_ceiling) is."""
    dots = [
        (name, _share(bound, value, is_ceiling=is_ceiling))
        for name, bound, value, is_ceiling in rows
        if value is not None
    ]
    title = "Measured / wanted (wanted / measured where less is better): from 1 on it is met"
    return svg.figure("", [svg.Dots(title, dots)])


def workload(asked: Workload, results: Results) -> str | None:
    """Draw ours beside the peers; None where there is nothing to draw."""
    panels = list(_bars(asked.name, results))
    return svg.figure(f"{asked.name}: {asked.title}", panels) if panels else None


def curve(kind: type[Curve], found: dict[str, Any], syncs: float | None) -> str:
    """Draw a curve; `syncs` per second are what the disk allows a lone committer."""
    panels: list[svg.Panel] = []
    for title, metrics in kind.panels:
        drawn = [svg.Series(metric, series(found, metric)) for metric in metrics]
        drawn = [one for one in drawn if one.points]
        level = ("fdatasync alone", syncs) if syncs and "commits/s" in metrics else None
        if drawn:
            panels.append(svg.Lines(title, kind.x, drawn, level))
    return svg.figure(kind.title.capitalize(), panels)


def profile(found: dict[str, Any]) -> str:
    """Draw where the microseconds of a commit go."""
    names = list(dict.fromkeys(name for case in found["cases"].values() for name in case["stages"]))
    rows = [
        (case, [content["stages"].get(name, 0.0) for name in names])
        for case, content in found["cases"].items()
    ]
    return svg.figure("", [svg.Strip("Where the microseconds of a commit go", rows, names)])


def _bars(name: str, results: Results) -> Iterator[svg.Bars]:
    peers = sorted(results.rounds.get(name, {}), key=lambda peer: (peer != OURS, peer))
    for metric in _BARS.get(name, ()):
        values = [(peer, results.value(name, metric, peer)) for peer in peers]
        found = [
            (peer if peer in results.durable else f"{peer} *", value)
            for peer, value in values
            if value is not None
        ]
        if len(found) > 1:
            yield svg.Bars(f"{metric}, less is better" if name in _LESS else metric, found)


def _share(bound: float, value: float, *, is_ceiling: bool) -> float:
    above, below = (bound, value) if is_ceiling else (value, bound)
    if below <= 0:
        return 1.0 if above >= below else _WORST
    return min(_BEST, max(_WORST, above / below))
