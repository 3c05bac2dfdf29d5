"""Search command: the rows of a table with the nearest vectors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from siltstone.cli.arguments import AsOf, Db, Table
from siltstone.cli.exits import NotFoundError, UsageError
from siltstone.cli.output import Form, emit_arrow
from siltstone.cli.rows import Columns, Filter, names_of
from siltstone.cli.sessions import at_moment

Vector = Annotated[
    str,
    typer.Argument(
        metavar="VECTOR",
        help="A JSON list of numbers, or a list of such lists; @FILE reads it from a file, @- from"
        " stdin.",
        show_default=False,
    ),
]


def search(
    table: Table,
    vector: Vector,
    db: Db,
    k: Annotated[int, typer.Option("--k", "-k", help="How many rows, for each vector.")] = 10,
    column: Annotated[
        str | None, typer.Option(help="The column to search; needed if several hold vectors.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="l2 (the default), cosine or dot; of uint8 vectors: hamming."),
    ] = None,
    where: Filter = None,
    columns: Columns = None,
    lower_bound: Annotated[
        float | None, typer.Option(help="Only rows at this distance or farther.")
    ] = None,
    upper_bound: Annotated[float | None, typer.Option(help="Only rows nearer than this.")] = None,
    nprobes: Annotated[
        int | None, typer.Option(help="How many partitions of an index are looked into.")
    ] = None,
    refine: Annotated[
        int | None, typer.Option(help="Measure so many times k rows that an index found.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Ask no index.")] = False,
    *,
    as_of: AsOf,
    form: Form,
) -> None:
    """Print the rows with the nearest vectors, the nearest first, with their _distance."""
    asked = _vector_of(vector)
    metrics: Any = metric  # the store says which there are
    bounds = None if lower_bound is None and upper_bound is None else (lower_bound, upper_bound)
    with at_moment(db, as_of) as snapshot:
        found = snapshot[table].search(
            asked,
            k,
            column=column,
            metric=metrics,
            filter=where,
            columns=names_of(columns),
            distance_range=bounds,
            nprobes=nprobes,
            refine=refine,
            exact=exact,
        )
    emit_arrow(found.to_arrow().to_reader(), form)


def _vector_of(given: str) -> object:
    """Return the vector, or the list of them, that an argument spells or names.

    Raises:
        UsageError: It is no JSON.
        NotFoundError: The file cannot be read.
    """
    text, where = given, "VECTOR"
    if given.startswith("@"):
        where = given[1:]
        text = sys.stdin.read() if where == "-" else _text_of(Path(where))
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(
            f"{where} must be a JSON list of numbers, like '[0.5, 1]'; got {text.strip()!r:.80}"
        ) from None


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NotFoundError(f"cannot read {file}: {error.strerror}") from error
