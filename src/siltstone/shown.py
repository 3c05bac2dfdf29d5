"""Shown: rows as people see them, in a terminal and in a notebook: the first few, cut short."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

ROWS_MAX = 10
NAMES_MAX = 50
CELL_CHARACTERS_MAX = 40

Row = Sequence[object]


def as_text(columns: Sequence[str], rows: Sequence[Row], below: str) -> str:
    """Return rows under the names of their columns, and a line `below` them."""
    lines = [[_cell(name) for name in columns], *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    texts = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    texts.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*texts, below])


def as_html(columns: Sequence[str], rows: Sequence[Row], below: str) -> str:
    """Return the same as a table of HTML, for a notebook."""
    head = "".join(f"<th>{escape(_cell(name))}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{table}<p>{escape(below)}</p></div>"


def counted(rows: int) -> str:
    """Return the line below rows that says how many there are."""
    return "(1 row)" if rows == 1 else f"({rows} rows)"


def _cell(value: object) -> str:
    text = "NULL" if value is None else str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 1] + "…"
