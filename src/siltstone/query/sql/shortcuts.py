"""Shortcuts: parts of a statement that need of a table only how many rows it has.

`SELECT count(*) FROM t` is one wherever it stands, if the statement reads the table nowhere else.
DuckDB would read a column of all rows for it. It gets as many rows without values instead, so all
else of the statement (names, types, what is done with the number) remains its own.

The same place is for what else asks for few rows: the first and last key, keys in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from siltstone.query.sql.dataset import Filter, Scannable

_BATCH_ROWS = 122_880
_BATCH_BYTES = 4 << 20
_OF_A_TABLE = {"this", "db", "alias"}


@runtime_checkable
class Countable(Scannable, Protocol):
    """A table that knows how many rows it has."""

    def count(self) -> int:
        """Return the number of rows."""
        ...


class RowsToCount:
    """As many rows as a table has, without their values."""

    def __init__(self, source: Countable) -> None:
        self.source, self.schema = source, source.schema

    def scan(
        self,
        columns: Sequence[str] | None,
        filter: Filter,  # noqa: A002 - pyarrow's word
        limit: int | None,
    ) -> pa.RecordBatchReader:
        """Return rows of nulls; if there is a filter, the rows themselves."""
        if filter is not None:
            return self.source.scan(columns, filter, limit)
        names = self.schema.names if columns is None else columns
        fields = pa.schema([self.schema.field(name).with_nullable(True) for name in names])
        return pa.RecordBatchReader.from_batches(fields, self._batches(fields))

    def _batches(self, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        left = self.source.count()
        row_bytes = 1 + sum(pa.nulls(1, field.type).nbytes for field in fields)
        rows = min(left, _BATCH_ROWS, max(1, _BATCH_BYTES // row_bytes))  # a vector has room, too
        nothing = [pa.nulls(rows, field.type) for field in fields]
        whole = pa.RecordBatch.from_arrays(nothing, schema=fields)
        while left:
            yield whole.slice(0, left)
            left -= min(left, rows)


def is_counted(table: Any) -> bool:
    """Say whether a table in a tree of sqlglot stands where only its rows are counted."""
    from sqlglot import exp  # noqa: PLC0415 (0.3 s)

    select = table.parent.parent if isinstance(table.parent, exp.From) else None
    return (
        isinstance(select, exp.Select)
        and _given(select) <= {"expressions", "from_", "with_"}
        and _given(table) <= _OF_A_TABLE
        and all(_counts_rows(each.unalias()) for each in select.expressions)
    )


def _counts_rows(node: Any) -> bool:
    from sqlglot import exp  # noqa: PLC0415 (0.3 s)

    return (
        isinstance(node, exp.Count)
        and (node.this is None or (isinstance(node.this, exp.Star) and not _given(node.this)))
        and _given(node) <= {"this", "big_int"}
    )


def _given(node: Any) -> set[str]:
    return {name for name, value in node.args.items() if value}
