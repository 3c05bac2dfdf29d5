"""Fetched rows: the rows of one result, as they are read: a batch or two are in memory.

A small result is read at once, and then holds nothing of the store. A larger one holds its
snapshot, or its place in a transaction, until the last row was fetched, or `end`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from siltstone.dbapi.pep_errors import DataError, InterfaceError
from siltstone.dbapi.type_objects import Column, described, is_hugeint

ROWS_AHEAD = 8_192
"""A result of no more rows is read at once: as many as one batch of DuckDB has."""
Row = tuple[Any, ...]


class FetchedRows:
    """See the module. One thread at a time.

    `is_of_transaction`: they end with the transaction that read them.
    """

    def __init__(self, rows: pa.RecordBatchReader, *, is_of_transaction: bool = False) -> None:
        self.description: list[Column] = described(rows.schema)
        self.is_of_transaction = is_of_transaction
        self._rows: pa.RecordBatchReader | None = rows
        self._hugeints = frozenset(
            place for place, field in enumerate(rows.schema) if is_hugeint(field)
        )
        self._held = deque[pa.RecordBatch]()
        self._batch: Iterator[Row] = iter(())
        self._refusal = ""
        try:
            while sum(batch.num_rows for batch in self._held) <= ROWS_AHEAD and self._read():
                pass
        except BaseException:
            self.close()
            raise

    @property
    def is_read(self) -> bool:
        """Whether all that is left of them is in memory."""
        return self._rows is None

    def take(self, count: int | None) -> list[Row]:
        """Return the next rows, at most so many, or all that are left.

        Raises:
            InterfaceError: They were ended.
            DataError: Python has no such value.
            SiltstoneError: As `Store.sql_reader`; the rows are over.
        """
        if self._refusal:
            raise InterfaceError(self._refusal)
        taken: list[Row] = []
        try:
            while count is None or len(taken) < count:
                found = list(islice(self._batch, None if count is None else count - len(taken)))
                taken += found
                if not found and not self._next_batch():
                    break
        except BaseException as error:
            self._refusal = f"the rows ended with an error: {error}"
            self.close()
            if isinstance(error, pa.ArrowException | ValueError | OverflowError):
                raise DataError(f"Python has no such value: {error}") from error
            raise
        return taken

    def end(self, why: str) -> None:
        """End them: those that are not in memory are refused from now on."""
        if not self.is_read:
            self._refusal = why
            self.close()

    def close(self) -> None:
        """Forget the rows, and give back what they hold of the store."""
        rows, self._rows = self._rows, None
        self._held.clear()
        self._batch = iter(())
        if rows is not None:
            rows.close()

    def _read(self) -> bool:
        """Read one more batch; say whether there was one."""
        batch = None if self._rows is None else next(iter(self._rows), None)
        if batch is None:
            self._rows = None
            return False
        self._held.append(batch)
        return True

    def _next_batch(self) -> bool:
        """Go on to the rows of the next batch; say whether there is one."""
        if not self._held and not self._read():
            return False
        batch = self._held.popleft()
        columns = map(self._values, batch.columns, range(batch.num_columns))
        self._batch = zip(*columns, strict=True)
        return True

    def _values(self, column: Any, place: int) -> list[Any]:
        values = column.to_pylist()
        if place in self._hugeints:
            return [None if value is None else int(value) for value in values]
        return values
