"""Plots: the drawings of the page: siltstone beside others, and curves over more and more."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from bench import curves
from bench.curves.curve import Curve
from bench.kept import Run
from bench.results import OURS, Results

BESIDE = {
    "commits of one row per second, 1 thread": ("W1", "1 threads"),
    "commits of one row per second, 8 threads": ("W1", "8 threads"),
    "transfers per second, 1 thread": ("W3", "1 threads"),
    "transfers per second, 8 threads": ("W3", "8 threads"),
    "rows upserted per second, 100,000 at once": ("W2", "100,000 rows"),
    "recent rows read per second by their keys": ("W4", "recent"),
    "rows scanned per second, all columns": ("W5", "clean all columns"),
    "rows scanned per second, few columns": ("W5", "clean narrow"),
}
"""What is drawn beside others: the title of each panel, its workload and metric."""
_SYNCS = "fdatasync/s, preallocated file"
# A drawing of the same numbers is the same text, and its words stay words.
_STYLE = {"svg.hashsalt": "siltstone", "svg.fonttype": "none", "font.size": 8}
_COLUMNS = 2
_CURVE, _BARS = (3.2, 2.6), (3.2, 1.5)
"""Of one panel, in inches."""
_COLOURS = {True: "#0b6e6e", False: "#98a2ad"}
# Rules outweigh what matplotlib writes into each element. The ground is that of the page.
_SCHEMES = """
text, g[id^="text_"] { fill: #16202a }
[style*="fill: #ffffff"] { fill: none !important }
@media (prefers-color-scheme: dark) {
  text, g[id^="text_"] { fill: #e7ecf0 }
  [style*="stroke: #000000"] { stroke: #a3afba !important }
  [style*="fill: #0b6e6e"] { fill: #58c4bf !important }
  [style*="fill: #1f77b4"] { fill: #7fb4ea !important }
  [style*="stroke: #1f77b4"] { stroke: #7fb4ea !important }
  [style*="fill: #b3402e"] { fill: #e0705e !important }
}
"""


def draw(runs: list[Run], path: Path) -> None:
    """Draw what is kept of all curves; nothing where nothing is."""
    sources = {name: run for run in runs if run.kind == "curves" for name in run.subjects}
    known = [kind for kind in curves.ALL if kind.name in sources]
    with rc_context(_STYLE):
        figure, panels = _panels(len(known), _CURVE)
        for kind, axes in zip(known, panels, strict=True):
            _curve(axes, kind, sources[kind.name])
        _save(figure, len(known), path)


def compare(results: Results, path: Path) -> None:
    """Draw what is kept of siltstone beside others, a panel for each of `BESIDE`."""
    known = [key for key in BESIDE if results.value(*BESIDE[key]) is not None]
    with rc_context(_STYLE):
        figure, panels = _panels(len(known), _BARS)
        for title, axes in zip(known, panels, strict=True):
            _bars(axes, title, results)
        _save(figure, len(known), path)


def in_both_schemes(svg: str) -> str:
    """Return a drawing of matplotlib so that it can be read on a light and on a dark page."""
    return svg.replace("</style>", f"{_SCHEMES}</style>", 1)


def _panels(count: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    rows = max(-(-count // _COLUMNS), 1)
    figure = Figure((size[0] * _COLUMNS, size[1] * rows), layout="constrained")
    grid = figure.add_gridspec(rows, _COLUMNS)
    return figure, [figure.add_subplot(grid[divmod(at, _COLUMNS)]) for at in range(count)]


def _save(figure: Figure, count: int, path: Path) -> None:
    if count:
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
        path.write_text(in_both_schemes(drawn.getvalue()))


def _bars(axes: Axes, title: str, results: Results) -> None:
    """Draw one bar for each store, the fastest on top; `*` has commits that a crash may forget."""
    workload, metric = BESIDE[title]
    found = {
        peer: value
        for peer in results.rounds[workload]
        if (value := results.value(workload, metric, peer)) is not None
    }
    peers = sorted(found, key=lambda peer: found[peer])
    names = [peer if peer in results.durable else f"{peer} *" for peer in peers]
    axes.barh(names, [found[x] for x in peers], color=[_COLOURS[x == OURS] for x in peers])
    axes.set_title(title, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.spines[["top", "right"]].set_visible(False)


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
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.legend()
