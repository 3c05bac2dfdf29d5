"""Result: the rows of a statement, all in memory, as Arrow, as frames and as rows of Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from siltstone.arguments import count_of
from siltstone.process import extras
from siltstone.text import shown

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from polars import DataFrame as PolarsFrame

Row = tuple[Any, ...]


class Result:
    """See the module. `fetchone` and `fetchmany` go on where they ended; one thread at a time.

    All other calls may be made any number of times.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table, self._place = table, 0

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    @property
    def columns(self) -> list[str]:
        return self._table.column_names

    @property
    def description(self) -> list[tuple[str, pa.DataType, None, None, None, None, None]]:
        """The columns as DB-API 2.0 describes them: seven members, of which two are known."""
        return [(field.name, field.type, None, None, None, None, None) for field in self.schema]

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

    def to_polars(self) -> PolarsFrame:
        """Return the rows as a Polars data frame.

        Raises:
            UnavailableError: Polars is not installed.
        """
        return extras.imported("polars", "to_polars()", "Polars", "polars").from_arrow(self._table)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dicts; of columns with equal names the last one counts."""
        return self._table.to_pylist()

    def arrow(self) -> pa.Table:
        """Return what `to_arrow` does, under DuckDB's name."""
        return self._table

    def df(self) -> pd.DataFrame:
        """Return what `to_pandas` does, under DuckDB's name."""
        return self.to_pandas()

    def pl(self) -> PolarsFrame:
        """Return what `to_polars` does, under DuckDB's name."""
        return self.to_polars()

    def limit(self, limit: int) -> Result:
        """Return the first rows, at most `limit`, as a result of their own.

        Raises:
            RequestError: `limit` is no integer from 0.
        """
        return Result(self._table.slice(0, count_of("limit", limit, 0)))

    def fetchone(self) -> Row | None:
        """Return the next row as a tuple of Python values; None after the last one."""
        return next(iter(self.fetchmany(1)), None)

    def fetchmany(self, size: int = 1) -> list[Row]:
        """Return the next rows, at most `size`; none after the last one.

        Raises:
            RequestError: `size` is no integer from 0.
        """
        found = _rows(self._table.slice(self._place, count_of("size", size, 0)))
        self._place += len(found)
        return found

    def fetchall(self) -> list[Row]:
        """Return the rows that `fetchone` and `fetchmany` have not returned, as tuples."""
        return _rows(self._table.slice(self._place))

    def show(self, rows_max: int = shown.ROWS_MAX) -> None:
        """Print the columns and the first rows."""
        print(self._text(rows_max))  # noqa: T201 - that is what it is for

    def __len__(self) -> int:
        return self._table.num_rows

    def __iter__(self) -> Iterator[Row]:
        return iter(_rows(self._table))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return self._text(shown.ROWS_MAX)

    def _repr_html_(self) -> str:
        first = _rows(self._table.slice(0, shown.ROWS_MAX))
        return shown.as_html(self.columns, first, shown.counted(len(self)))

    def _text(self, rows_max: int) -> str:
        first = _rows(self._table.slice(0, rows_max))
        return shown.as_text(self.columns, first, shown.counted(len(self)))


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
