"""SVG: panels of lines, bars or dots side by side, as text that is the same for the same numbers.

Written by hand: five shapes do, and a file that a library writes anew with each of its versions
would change in every commit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol

Point = tuple[float, float]

# Okabe and Ito: told apart by everybody, in print too.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b6b6b")
GOOD, BAD = "#009e73", "#d55e00"
_INK, _GRID, _PAPER = "#24292f", "#d9dee3", "#ffffff"
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_GAP, _TITLE_HEIGHT = 18, 26


class Panel(Protocol):
    """One drawing; `width` and `height` in pixels."""

    width: int
    height: int

    def draw(self) -> Iterator[str]:
        """Yield the shapes, with the left upper corner at 0, 0."""
        ...


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines over a logarithmic x; y begins at 0, or is logarithmic where it spans much.

    `level` is a line straight across, with its name: what the machine allows.
    """

    title: str
    x: str
    series: Sequence[Series]
    level: tuple[str, float] | None = None
    width: int = 300
    height: int = 230

    def draw(self) -> Iterator[str]:
        left, right, top, bottom = 52, self.width - 12, 40, self.height - 40
        xs = sorted({x for one in self.series for x, _ in one.points})
        values = [y for one in self.series for _, y in one.points]
        values += [self.level[1]] if self.level else []
        is_log = min(values) > 0 and max(values) > 30 * min(values)
        ticks = _log_ticks(values) if is_log else _ticks(max(values))

        def place_x(x: float) -> float:
            span = math.log(xs[-1] / xs[0]) if xs[-1] > xs[0] else 1.0
            return left + (right - left) * math.log(x / xs[0]) / span

        def place_y(y: float) -> float:
            low, high = ticks[0], ticks[-1]
            share = math.log(y / low) / math.log(high / low) if is_log else y / high
            return bottom - (bottom - top) * share

        yield _text(0, 14, self.title, weight="bold")
        yield from self._legend()
        for tick in ticks:
            yield _line(left, place_y(tick), right, place_y(tick), _GRID)
            yield _text(left - 6, place_y(tick) + 4, number(tick), anchor="end", size=10)
        for x in xs:
            yield _text(place_x(x), bottom + 15, number(x), anchor="middle", size=10)
        yield _text((left + right) / 2, bottom + 32, self.x, anchor="middle", size=11)
        if self.level:
            name, value = self.level
            yield _line(left, place_y(value), right, place_y(value), _INK, dash="4 3")
            yield _text(right, place_y(value) - 4, name, anchor="end", size=10)
        for color, one in zip(COLORS, self.series, strict=False):
            yield from _curve([(place_x(x), place_y(y)) for x, y in one.points], color)

    def _legend(self) -> Iterator[str]:
        if len(self.series) < 2:
            return
        x = 52.0
        for color, one in zip(COLORS, self.series, strict=False):
            yield f'<rect x="{_f(x)}" y="22" width="9" height="9" fill="{color}"/>'
            yield _text(x + 13, 30, one.name, size=10)
            x += 24 + 6 * len(one.name)


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar for each name, from 0, with its number; the first is ours."""

    title: str
    values: Sequence[tuple[str, float]]
    width: int = 300

    @property
    def height(self) -> int:
        return 26 + 17 * len(self.values)

    def draw(self) -> Iterator[str]:
        left, right = 72, self.width - 58
        most = max([value for _, value in self.values] or [1.0]) or 1.0
        yield _text(0, 14, self.title, weight="bold")
        for row, (name, value) in enumerate(self.values):
            y, length = 24 + 17 * row, (right - left) * value / most
            color = COLORS[0] if row == 0 else COLORS[-1]
            yield _text(left - 6, y + 11, name, anchor="end", size=11)
            yield f'<rect x="{left}" y="{y}" width="{_f(length)}" height="13" fill="{color}"/>'
            yield _text(left + length + 4, y + 11, number(value), size=10)


@dataclass(frozen=True, slots=True)
class Dots:
    """One dot for each name on a logarithmic scale from 0.1 to 10 times what was wanted."""

    title: str
    values: Sequence[tuple[str, float]]
    width: int = 760

    @property
    def height(self) -> int:
        return 62 + 16 * len(self.values)

    def draw(self) -> Iterator[str]:
        left, right, bottom = 300, self.width - 20, self.height - 24

        def place(value: float) -> float:
            share = (math.log10(min(10.0, max(0.1, value))) + 1) / 2
            return left + (right - left) * share

        yield _text(0, 14, self.title, weight="bold")
        for tick in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0):
            color = _INK if tick == 1 else _GRID
            yield _line(place(tick), 28, place(tick), bottom, color)
            yield _text(place(tick), bottom + 16, f"{tick:g}", anchor="middle", size=10)
        for row, (name, value) in enumerate(self.values):
            y, color = 38 + 16 * row, GOOD if value >= 1 else BAD
            yield _text(left - 8, y + 4, name, anchor="end", size=11)
            yield _line(place(1), y, place(value), y, color, width=2)
            yield f'<circle cx="{_f(place(value))}" cy="{y}" r="4.5" fill="{color}"/>'


@dataclass(frozen=True, slots=True)
class Strip:
    """Parts of a whole, one after the other, in one bar for each row; the legend stands below."""

    title: str
    rows: Sequence[tuple[str, Sequence[float]]]
    names: Sequence[str]
    width: int = 760

    @property
    def height(self) -> int:
        return 34 + 30 * len(self.rows) + 18 * math.ceil(len(self.names) / 4)

    def draw(self) -> Iterator[str]:
        left, right = 130, self.width - 60
        most = max(sum(parts) for _, parts in self.rows)
        colors = [COLORS[i % len(COLORS)] for i in range(len(self.names))]
        yield _text(0, 14, self.title, weight="bold")
        for row, (name, parts) in enumerate(self.rows):
            y, x = 28 + 30 * row, float(left)
            yield _text(left - 8, y + 15, name, anchor="end", size=11)
            for index, (color, part) in enumerate(zip(colors, parts, strict=True)):
                width = (right - left) * max(0.0, part) / most
                fade = 1 if index < len(COLORS) else 0.55
                yield (
                    f'<rect x="{_f(x)}" y="{y}" width="{_f(width)}" height="20" fill="{color}"'
                    f' fill-opacity="{fade}" stroke="{_PAPER}"/>'
                )
                x += width
            yield _text(x + 5, y + 15, number(sum(parts)), size=11)
        for index, (color, name) in enumerate(zip(colors, self.names, strict=True)):
            x, y = 10 + 190 * (index % 4), 34 + 30 * len(self.rows) + 18 * (index // 4)
            fade = 1 if index < len(COLORS) else 0.55
            yield (
                f'<rect x="{x}" y="{y}" width="10" height="10" fill="{color}"'
                f' fill-opacity="{fade}"/>'
            )
            yield _text(x + 15, y + 9, name, size=11)


def figure(title: str, panels: Sequence[Panel], columns: int = 3) -> str:
    """Return the panels in rows of `columns`, below a title, as one SVG document."""
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    width = max(sum(panel.width + _GAP for panel in row) for row in rows) + _GAP
    shapes: list[str] = []
    y = _GAP + (_TITLE_HEIGHT if title else 0)
    for row in rows:
        x = _GAP
        for panel in row:
            drawn = "\n".join(panel.draw())
            shapes.append(f'<g transform="translate({x} {y})">\n{drawn}\n</g>')
            x += panel.width + _GAP
        y += max(panel.height for panel in row) + _GAP
    head = _text(_GAP, 26, title, size=15, weight="bold") if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}"'
        f' viewBox="0 0 {width} {y}" font-family="{escape(_FONT)}">\n'
        f'<rect width="{width}" height="{y}" fill="{_PAPER}"/>\n'
        + "\n".join([head, *shapes])
        + "\n</svg>\n"
    )


def number(value: float) -> str:
    """Return a number as an axis has it: 0.25, 17.8k, 10M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _ticks(most: float) -> list[float]:
    """Return round steps from 0 to the first that is not below `most`."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / 4
    size = 10 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough)
    return [step * index for index in range(math.ceil(most / step - 1e-9) + 1)]


def _log_ticks(values: Sequence[float]) -> list[float]:
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)) + 1e-9)
    return [10.0**power for power in range(low, max(high, low + 1) + 1)]


def _curve(points: Sequence[Point], color: str) -> Iterator[str]:
    path = " ".join(f"{_f(x)},{_f(y)}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{_f(x)}" cy="{_f(y)}" r="3" fill="{color}"/>'


def _line(
    x: float, y: float, to_x: float, to_y: float, color: str, *, width: int = 1, dash: str = ""
) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{_f(x)}" y1="{_f(y)}" x2="{_f(to_x)}" y2="{_f(to_y)}" stroke="{color}"'
        f' stroke-width="{width}"{dashes}/>'
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, weight: str = "normal"
) -> str:
    return (
        f'<text x="{_f(x)}" y="{_f(y)}" font-size="{size}" font-weight="{weight}"'
        f' text-anchor="{anchor}" fill="{_INK}">{escape(text)}</text>'
    )


def _f(value: float) -> str:
    """Return a coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
