"""Held rows: rows in memory, as Arrow, as frames and as rows of Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from siltstone.formats.types.unfit_types import refuse_decimal256
from siltstone.process import extras
from siltstone.text import shown

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl

Row = tuple[Any, ...]


class HeldRows:
    """See the module. Immutable."""

    __slots__ = ("_table",)

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._table.schema

    def to_arrow(self) -> pa.Table:
        """Return the rows as a table of Arrow."""
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
        """Return the rows as dicts; of columns with equal names the last one counts."""
        return self._table.to_pylist()

    def __len__(self) -> int:
        return self._table.num_rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return self._text(shown.ROWS_MAX)

    def _text(self, rows_max: int) -> str:
        first = tuples(self._table.slice(0, rows_max))
        return shown.as_text(self._table.column_names, first, shown.counted(len(self)))

    def _repr_html_(self) -> str:
        first = tuples(self._table.slice(0, shown.ROWS_MAX))
        return shown.as_html(self._table.column_names, first, shown.counted(len(self)))


def tuples(table: pa.Table) -> list[Row]:
    """Return the rows as tuples of Python values."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
