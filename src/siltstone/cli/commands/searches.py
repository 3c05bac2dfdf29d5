"""Search command: the rows of a table with the nearest vectors, or with words, or with both."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from siltstone.cli.arguments import AsOf, Db, Table
from siltstone.cli.commands.rows import Columns, Filter, names_of
from siltstone.cli.exits import NotFoundError
from siltstone.cli.output import Form, emit_arrow
from siltstone.cli.sessions import at_moment

Query = Annotated[
    str,
    typer.Argument(
        metavar="QUERY",
        help="A JSON list of numbers, or a list of such lists, is a vector, or several; any other"
        " text is words. @FILE reads it from a file, @- from stdin.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class SearchForm:
    """What is searched, and how: the arguments of `Table.search`, under their names."""

    k: Annotated[int, typer.Option("--k", "-k", help="How many rows, for each vector.")] = 10
    column: Annotated[
        str | None, typer.Option(help="The column to search; needed if there are several.")
    ] = None
    operator: Annotated[
        str | None, typer.Option(help="For words: or (any of them; the default), and (all).")
    ] = None
    phrase: Annotated[bool, typer.Option("--phrase", help="The words follow each other.")] = False
    fuzzy: Annotated[
        int | None, typer.Option(help="Letters of a word that may be more, less or changed: 0-2.")
    ] = None
    boost: Annotated[
        str | None,
        typer.Option(
            help="Scores are multiplied by it; or JSON: the weights of columns to search."
        ),
    ] = None
    vector: Annotated[
        str | None,
        typer.Option("--vector", help="With words: a vector, as JSON; both rankings are combined."),
    ] = None
    vector_column: Annotated[
        str | None, typer.Option(help="With words: the column of vectors.")
    ] = None
    fusion: Annotated[
        str | None,
        typer.Option(help="For both: rrf (the default), or JSON: the weights of words and vector."),
    ] = None
    metric: Annotated[
        str | None,
        typer.Option(help="l2 (the default), cosine or dot; for uint8 vectors: hamming."),
    ] = None
    filter: Filter = None
    columns: Columns = None
    lower_bound: Annotated[
        float | None, typer.Option(help="Only rows at this distance or farther.")
    ] = None
    upper_bound: Annotated[float | None, typer.Option(help="Only rows nearer than this.")] = None
    nprobes: Annotated[
        int | None, typer.Option(help="How many partitions of an index to search.")
    ] = None
    refine: Annotated[
        int | None, typer.Option(help="Exact distances for this many times k rows of the index.")
    ] = None
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Use no index; for words: score by the rows that are read."),
    ] = False

    def arguments(self) -> dict[str, Any]:
        """Return them for `Table.search`; which choices there are the store says."""
        found = asdict(self)
        bounds = found.pop("lower_bound"), found.pop("upper_bound")
        for name in ("boost", "vector", "fusion"):
            found[name] = None if found[name] is None else _spelled(found[name])
        distance_range = None if bounds == (None, None) else bounds
        return {**found, "columns": names_of(self.columns), "distance_range": distance_range}


def search(table: Table, query: Query, db: Db, *, how: SearchForm, as_of: AsOf, form: Form) -> None:
    """Print the rows with the nearest vectors, or the best words.

    The column _distance says how near a vector is, _score how well the words fit.
    """
    asked = _query_of(query)
    with at_moment(db, as_of) as snapshot:
        found = snapshot[table].search(asked, **how.arguments())
    emit_arrow(found.to_arrow().to_reader(), form)


def _query_of(given: str) -> Any:
    """Return the vector, or the list of them, or the words that an argument has or names.

    Raises:
        NotFoundError: The file cannot be read.
    """
    text = given
    if given.startswith("@"):
        text = sys.stdin.read() if given == "@-" else _text_of(Path(given[1:]))
    found = _spelled(text)
    return found if isinstance(found, list) else text


def _spelled(text: str) -> Any:
    """Return the value of a JSON text, or the text if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NotFoundError(f"cannot read {file}: {error.strerror}") from error
