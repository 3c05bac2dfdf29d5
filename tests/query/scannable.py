"""A table in memory that records what its scans were asked for."""

# ruff: noqa: A001, A002 (`filter` is pyarrow's word)

import threading
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from siltstone.engine.filter.filters import parse
from siltstone.query.sql import sql


def result_of(
    text: str,
    tables: Callable[[str], object],
    names: Sequence[str],
    parameters: sql.Parameters = None,
    **options: object,
) -> sql.Result:
    """Run a query over tables by their names, and return all its rows."""
    return sql.collected(sql.read(text, tables, names, parameters, **options))


class Recording:
    def __init__(self, table: pa.Table, error: Exception | None = None) -> None:
        self.table = table
        self.error = error
        self.calls: list[tuple[Sequence[str] | None, str, int | None]] = []
        self.open_scans = 0
        self._changed = threading.Condition()  # Arrow's threads close scans

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def scan(
        self, columns: Sequence[str] | None, filter: str | pc.Expression | None, limit: int | None
    ) -> pa.RecordBatchReader:
        self.calls.append((columns, str(filter), limit))
        if isinstance(filter, str):
            filter = parse(filter, self.schema).expression
        found = ds.dataset(self.table).to_table(columns=columns, filter=filter)[:limit]
        with self._changed:
            self.open_scans += 1
        return pa.RecordBatchReader.from_batches(found.schema, self._pull(found))

    def _pull(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        try:
            yield from table.to_batches(max_chunksize=2)
            if self.error is not None:
                raise self.error
        finally:
            with self._changed:
                self.open_scans -= 1
                self._changed.notify_all()

    def has_closed_all(self) -> bool:
        """Return whether all scans are closed, or become so within a minute."""
        with self._changed:
            return self._changed.wait_for(lambda: self.open_scans == 0, 60)
