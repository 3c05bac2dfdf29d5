"""Frames: the data frames of the caller of `sql`, by the names of its variables.

Only the frame of the call itself is looked at, and only if it is a user's: a server that runs what
its client sent is of this package, and has no variables to give.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import pyarrow as pa

from siltstone.engine.catalog.row_input import stream_of
from siltstone.errors import RequestError, TableNotFoundError
from siltstone.formats.types.extensions import unknown_in, why_unknown
from siltstone.formats.types.layouts import plain_column, plain_schema

Variables: TypeAlias = Callable[[str], object]
"""Returns the value of a variable; None if the caller has none of that name. The command line
returns the rows of the user's files, by their paths."""
_OF_DUCKDB = ("arrow.bool8",)
"""Extensions that DuckDB knows, and columns of tables do not have."""
_PACKAGE = str(Path(__file__).parents[2])


def variables_of(frame: FrameType) -> Variables:
    """Return the variables that a calling frame sees: its own, then those of its module."""
    if frame.f_code.co_filename.startswith(_PACKAGE):
        return lambda _: None

    def found(name: str) -> object:
        if not name.isidentifier():
            return None
        return frame.f_locals.get(name, frame.f_globals.get(name))

    return found


def read_once(variables: Variables) -> Variables:
    """Return the variables for a statement that asks for one twice, as each that writes may.

    A stream gives its rows once. So a frame is read when it is asked for first, and is kept.
    """
    kept: dict[str, _ReadRows | None] = {}

    def found(name: str) -> object:
        if name not in kept:
            rows = rows_of(variables, name)
            kept[name] = None if rows is None else _ReadRows(rows)
        return kept[name]

    return found


@dataclass(frozen=True, slots=True)
class _ReadRows:
    """What `rows_of` returned once."""

    rows: pa.Table


def rows_of(variables: Variables, name: str) -> pa.Table | None:
    """Return the rows of a data frame of the caller; None: it has no variable of that name.

    Raises:
        TableNotFoundError: The variable has something else.
        RequestError: Its rows cannot be read.
    """
    found = variables(name)
    if isinstance(found, _ReadRows):
        return found.rows
    if found is None or isinstance(found, type):
        return None
    try:
        stream = stream_of(found)
        if stream is not None:
            _refuse_unknown_types(stream.schema)
            rows = stream.read_all()
            columns = [plain_column(column) for column in rows.columns]
            return pa.Table.from_arrays(columns, schema=plain_schema(rows.schema))
    except pa.ArrowException as error:
        raise RequestError(f"the rows of {name!r} cannot be read: {error}") from error
    kind = type(found).__name__
    why = f"no table has the name, and the variable {name!r} is of type {kind}, which has no rows"
    raise TableNotFoundError(name, why=f"{why} (pandas, Polars and Arrow have)")


def _refuse_unknown_types(schema: pa.Schema) -> None:
    for field in schema:
        unknown = unknown_in(field)
        if unknown is not None and unknown not in _OF_DUCKDB:
            raise RequestError(
                f"column {field.name!r} is given as {field.type}: {why_unknown(unknown)}"
            )


@contextmanager
def refused_elsewhere(frame: FrameType) -> Generator[None]:
    """Say of a statement that another process runs that it does not see the caller's frames.

    Raises:
        RequestError: A table is missing, and a variable of the caller has the name.
    """
    try:
        yield
    except TableNotFoundError as error:
        found = variables_of(frame)(error.table)
        if found is None or isinstance(found, type):
            raise
        raise RequestError(
            f"{error.table!r} is a variable of this process, and the statement runs in another one:"
            " create a table with its rows, or query it here with `dataset()` of the store's"
        ) from error
