"""Result: the rows of a statement, all in memory, as Arrow, as frames and as rows of Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone.arguments import count_of
from siltstone.query.held_rows import HeldRows, Row, tuples
from siltstone.text import shown

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl


class Result(HeldRows):
    """See the module. `fetchone` and `fetchmany` go on where they ended; one thread at a time.

    All other calls may be made any number of times. `rows` is how many rows the statement wrote,
    None if it only read; `seq` that of its commit, None in a transaction, which commits later.
    """

    def __init__(self, table: pa.Table, *, rows: int | None = None, seq: int | None = None) -> None:
        super().__init__(table)
        self.rows, self.seq, self._place = rows, seq, 0

    @property
    def columns(self) -> list[str]:
        return self._table.column_names

    @property
    def description(self) -> list[tuple[str, pa.DataType, None, None, None, None, None]]:
        """The columns as DB-API 2.0 describes them: seven members, of which two are known."""
        return [(field.name, field.type, None, None, None, None, None) for field in self.schema]

    def arrow(self) -> pa.Table:
        """Return what `to_arrow` does, under DuckDB's name."""
        return self._table

    def df(self) -> pd.DataFrame:
        """Return what `to_pandas` does, under DuckDB's name."""
        return self.to_pandas()

    def pl(self) -> pl.DataFrame:
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
        found = tuples(self._table.slice(self._place, count_of("size", size, 0)))
        self._place += len(found)
        return found

    def fetchall(self) -> list[Row]:
        """Return the rows that `fetchone` and `fetchmany` have not returned, as tuples."""
        return tuples(self._table.slice(self._place))

    def show(self, rows_max: int = shown.ROWS_MAX) -> None:
        """Print the columns and the first rows."""
        print(self._text(rows_max))  # noqa: T201 - that is what it is for

    def __iter__(self) -> Iterator[Row]:
        return iter(tuples(self._table))
