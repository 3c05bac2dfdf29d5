"""Plots: the curves of the page, in one figure, each over what it has more and more of."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench import curves
from bench.curves.curve import Curve
from bench.kept import Run

_SYNCS = "fdatasync/s, preallocated file"
# A drawing of the same numbers is the same text, and its words stay words.
_STYLE = {"svg.hashsalt": "siltstone", "svg.fonttype": "none", "font.size": 8}
_SIZE = 3.2, 2.6
"""Of one curve, in inches."""


def draw(runs: list[Run], path: Path) -> None:
    """Draw what is kept of all curves, in one row; nothing where nothing is."""
    sources = {name: run for run in runs if run.kind == "curves" for name in run.subjects}
    known = [kind for kind in curves.ALL if kind.name in sources]
    if not known:
        return
    with rc_context(_STYLE):
        figure = Figure((_SIZE[0] * len(known), _SIZE[1]), layout="constrained")
        panels = figure.subplots(1, len(known), squeeze=False)[0]
        for kind, axes in zip(known, panels, strict=True):
            _curve(axes, kind, sources[kind.name])
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _curve(axes: Axes, kind: type[Curve], run: Run) -> None:
    """Draw one, and how often a second the disk syncs, which is all that a lone committer has."""
    points = run.found[kind.name]["points"]
    for metric in kind.drawn:
        found = [(point["x"], point[metric]) for point in points if metric in point]
        axes.plot(*zip(*found, strict=True), marker="o", label=metric)
    if "commits/s" in kind.drawn and (syncs := run.limits.get(_SYNCS)):
        axes.axhline(syncs, color="gray", linestyle="--", label="fdatasync/s alone")
    axes.set(title=kind.title.capitalize(), xlabel=kind.x, xscale="log")
    axes.set_ylim(bottom=0)
    axes.legend()
