"""Shown: rows as people see them, in a terminal and in a notebook: the first few, cut short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from html import escape
from typing import Any, TypeVar

ROWS_MAX = 10
NAMES_MAX = 50
CELL_CHARACTERS_MAX = 40

Row = Sequence[object]
T = TypeVar("T")


class Listing(list[T]):
    """A list of values of one dataclass, which a notebook shows as a table of their fields."""

    def _repr_html_(self) -> str:
        return listed(self)


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


def listed(values: Sequence[Any]) -> str:
    """Return values of one dataclass as a table of HTML, a column for each field."""
    below = counted(len(values))
    if not values:
        return f"<div><p>{below}</p></div>"
    names = [field.name for field in fields(values[0])]
    rows = [[_text(getattr(value, name)) for name in names] for value in values[:ROWS_MAX]]
    return as_html(names, rows, below)


def counted(rows: int) -> str:
    """Return the line below rows that says how many there are."""
    return "(1 row)" if rows == 1 else f"({rows} rows)"


def _text(value: object) -> object:
    """Return a tuple of texts as one text, anything else as it is."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value


def _cell(value: object) -> str:
    text = "NULL" if value is None else str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 1] + "…"
