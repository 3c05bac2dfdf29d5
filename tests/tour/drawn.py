"""Drawn: what a terminal shows, as a picture: SVG, light or dark as its reader's screen is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from pyte.screens import Char

_CELL, _LINE, _EDGE, _BAR = 8.0, 19, 16, 34
"""Sizes in pixels: of a character, of a line, of the edge, and of the bar above all lines."""
_LIGHT = {
    "paper": "#fbfaf7", "bar": "#eceae3", "edge": "#d5d1c4", "ink": "#2b2a27", "faint": "#8b877c",
    "red": "#b3261e", "green": "#3c7a1f", "brown": "#8a6100", "blue": "#1f5fae",
    "magenta": "#8b3a8e", "cyan": "#0f7173",
}  # fmt: skip
_DARK = {
    "paper": "#1d2124", "bar": "#2a2f33", "edge": "#3a4146", "ink": "#dcdad2", "faint": "#868d90",
    "red": "#f2867b", "green": "#9ccf6f", "brown": "#e0b64f", "blue": "#7fb4f0",
    "magenta": "#d59ad8", "cyan": "#63c9c6",
}  # fmt: skip
_FONT = "ui-monospace, 'SF Mono', 'Cascadia Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace"

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {width} {height}"
 width="{width}" height="{height}" role="img" aria-label="{title}">
<style>
{style}</style>
<rect class="paper" x=".5" y=".5" width="{inner}" height="{low}" rx="8"/>
<path class="bar" d="M.5 {bar}V8.5a8 8 0 0 1 8-8H{right}a8 8 0 0 1 8 8V{bar}z"/>
<g class="dots">{dots}</g>
<text class="faint" x="{middle:g}" y="22" text-anchor="middle">{title}</text>
{body}</svg>
"""


def svg(lines: Sequence[Sequence[Char]], title: str) -> str:
    """Return the picture of some lines of a screen; it is as wide as the longest one."""
    kept = [_trimmed(line) for line in lines]
    width = round(max(map(len, kept)) * _CELL + 2 * _EDGE)
    height = _BAR + len(kept) * _LINE + 2 * _EDGE - 6
    dots = "".join(f'<circle cx="{18 + 18 * at}" cy="17" r="5.5"/>' for at in range(3))
    body = "".join(_line(line, _BAR + _EDGE + 10 + at * _LINE) for at, line in enumerate(kept))
    return _SVG.format(
        width=width, height=height, inner=width - 1, low=height - 1, right=width - 8.5,
        middle=width / 2, bar=_BAR, style=_style(), dots=dots, title=escape(title), body=body,
    )  # fmt: skip


def _style() -> str:
    looks = [
        f"text {{ font: 13px {_FONT}; white-space: pre; fill: var(--ink) }}",
        ".paper { fill: var(--paper); stroke: var(--edge) }",
        ".bar { fill: var(--bar); stroke: var(--edge) }",
        ".dots { fill: var(--edge) } .bold { font-weight: 600 } .slanted { font-style: italic }",
        *(f".{name} {{ fill: var(--{name}) }}" for name in list(_LIGHT)[4:]),
        f"@media (prefers-color-scheme: dark) {{ svg {{ {_variables(_DARK)} }} }}",
    ]
    return "\n".join([f"svg {{ {_variables(_LIGHT)} }}", *looks]) + "\n"


def _variables(look: dict[str, str]) -> str:
    return "; ".join(f"--{name}: {color}" for name, color in look.items())


def _trimmed(line: Sequence[Char]) -> Sequence[Char]:
    end = max((at + 1 for at, cell in enumerate(line) if cell.data.strip()), default=0)
    return line[:end]


def _line(line: Sequence[Char], y: int) -> str:
    """Return a line as texts that begin where their characters stand, whatever the font."""
    return "".join(_runs(line, y)) + ("\n" if line else "")


def _runs(line: Sequence[Char], y: int) -> Iterator[str]:
    x = 0
    for look, cells in groupby(line, key=_look):
        text = "".join(cell.data for cell in cells)
        shown = text.strip(" ")
        if shown:
            left = _EDGE + (x + len(text) - len(text.lstrip(" "))) * _CELL
            size = f' textLength="{len(shown) * _CELL:g}"' if len(shown) > 1 else ""
            named = f' class="{look}"' if look else ""
            yield f'<text x="{left:g}" y="{y}"{size}{named}>{escape(shown, quote=False)}</text>'
        x += len(text)


def _look(cell: Char) -> str:
    """Return the classes of a character; a color that has no name here is that of the ink."""
    color = cell.fg.removeprefix("bright")
    named = "faint" if color in {"black", "white"} else color if color in _LIGHT else ""
    rest = ("bold" if cell.bold else "", "slanted" if cell.italics else "")
    return " ".join(filter(None, (named, *rest)))
