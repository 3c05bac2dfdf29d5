"""Search result: the rows of a search, in memory, as Arrow, as frames and as rows of Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from siltstone.formats.types.unfit_types import refuse_decimal256
from siltstone.process import extras
from siltstone.text import shown

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl


class SearchResult:
    """The rows of a search, the nearest first; those of many vectors one query behind the other.

    `_distance` (float32) says how far a row is. With a list of vectors `_query` (int32) says which
    of them found it, counted from 0. Iterating gives rows as dicts. Immutable.
    """

    __slots__ = ("_table",)

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._table.schema

    def to_arrow(self) -> pa.Table:
        """Return the rows as a table."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas data frame.

        Raises:
            UnavailableError: pandas is not installed.
        """
        extras.imported("pandas", "to_pandas()", "pandas", "pandas")
        return self._table.to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a Polars data frame.

        Raises:
            UnavailableError: Polars is not installed.
        """
        polars = extras.imported("polars", "to_polars()", "Polars", "polars")
        refuse_decimal256(self.schema, "Polars")  # it would end the process
        return polars.from_arrow(self._table)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        return self._table.to_pylist()

    def __len__(self) -> int:
        return self._table.num_rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return shown.as_text(self._table.column_names, self._first(), shown.counted(len(self)))

    def _repr_html_(self) -> str:
        names = self._table.column_names
        return shown.as_html(names, self._first(), shown.counted(len(self)))

    def _first(self) -> list[tuple[Any, ...]]:
        first = self._table.slice(0, shown.ROWS_MAX)
        return list(zip(*(column.to_pylist() for column in first.columns), strict=True))
