"""Dataset: one table of a snapshot as a `pyarrow.dataset.Dataset`.

DuckDB, Polars and pandas use that interface and push filters and columns into it, down to the
`scan` of the table. A scan starts with the first batch and may be repeated: each scanner starts its
own scan of the same snapshot.

The C++ side of the class is empty, as in Lance's own dataset, so every method that would use it is
overridden; otherwise it would crash the process.
"""

# ruff: noqa: A002 (`filter` is pyarrow's word)
# pyright: reportIncompatibleMethodOverride=false
# The options that only tune pyarrow's own files are not spelled out.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from siltstone.engine.filter.arrow import mentions
from siltstone.engine.filter.filters import parse
from siltstone.errors import RequestError, no_such

Filter = str | pc.Expression | None
Columns = Sequence[str] | Mapping[str, pc.Expression] | None


class Scannable(Protocol):
    """The table of a dataset: returns its rows at one seq, any number of times."""

    @property
    def schema(self) -> pa.Schema: ...

    def scan(
        self, columns: Sequence[str] | None, filter: Filter, limit: int | None
    ) -> pa.RecordBatchReader:
        """Return the rows for which `filter` is true: `columns` in that order, `limit` at most.

        The filter may read columns that are not in `columns`.
        """
        ...


@runtime_checkable
class InMemory(Protocol):
    """A table that may have its rows in memory, where DuckDB filters them best."""

    def found_by(self) -> frozenset[str] | None:
        """Return the columns whose filters find rows; None: a filter of any one is of use."""
        ...


class SnapshotDataset(ds.Dataset):
    """The rows of one `Scannable`, read only."""

    def __init__(self, source: Scannable, filter: Filter = None) -> None:
        self._source = source
        self._filter = filter

    def __reduce__(self) -> tuple[type[SnapshotDataset], tuple[Scannable, Filter]]:
        return SnapshotDataset, (self._source, self._filter)

    def __repr__(self) -> str:
        return f"SnapshotDataset({self._source!r}, columns: {', '.join(self.schema.names)})"

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    # Reads

    def scanner(
        self,
        columns: Columns = None,
        filter: Filter = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> ds.Scanner:
        """Return a scanner, good for one pass.

        Args:
            columns: Names in any order, or names with the expressions that compute them.
            filter: An Arrow expression or a SQL boolean expression.
            batch_size: Rows per batch at most.
            options: Options of pyarrow, ignored.
        """
        return self._scanner(columns, filter, None, batch_size, options)

    def to_batches(
        self, columns: Columns = None, filter: Filter = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        return self.scanner(columns, filter, **options).to_batches()

    def to_table(self, columns: Columns = None, filter: Filter = None, **options: Any) -> pa.Table:
        return self.scanner(columns, filter, **options).to_table()

    def head(
        self, num_rows: int, columns: Columns = None, filter: Filter = None, **options: Any
    ) -> pa.Table:
        """Return the first rows; the scan stops after them."""
        batch_size = options.pop("batch_size", None)
        return self._scanner(columns, filter, num_rows, batch_size, options).to_table()

    def count_rows(self, filter: Filter = None, **options: Any) -> int:
        """Return the number of rows; reads only the narrowest column."""
        narrow = min(self.schema, key=lambda field: _width(field.type)).name
        return sum(batch.num_rows for batch in self.to_batches([narrow], filter, **options))

    def take(
        self, indices: Any, columns: Columns = None, filter: Filter = None, **options: Any
    ) -> pa.Table:
        """Return rows by their ordinals in a scan; reads the whole table."""
        return self.to_table(columns, filter, **options).take(indices)

    def filter(self, expression: Filter) -> SnapshotDataset:
        """Return a dataset of the rows for which `expression` is true, too."""
        return SnapshotDataset(self._source, _both(self._filter, expression, self.schema))

    def _scanner(
        self,
        columns: Columns,
        filter: Filter,
        limit: int | None,
        batch_size: int | None,
        options: Mapping[str, Any],
    ) -> ds.Scanner:
        return ds.Scanner.from_batches(
            self.reader(self._needed(columns), filter, batch_size, limit),
            columns=None if columns is None else _listed(columns),
            use_threads=bool(options.get("use_threads", True)),
        )

    def reader(
        self,
        names: Sequence[str],
        filter: Filter,
        batch_size: int | None = None,
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows of `names` as they are pulled; see `scanner`."""
        wanted = _both(self._filter, filter, self.schema)
        fields = [self.schema.field(name) for name in names]
        schema = pa.schema(fields, cast("Any", self.schema.metadata))
        batches = self._batches(wanted, limit, schema, batch_size)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _batches(
        self, filter: Filter, limit: int | None, schema: pa.Schema, batch_size: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Scan when the first batch is pulled; close it with the last, or with the reader."""
        reader = self._source.scan(list(schema.names), filter, limit)
        try:
            for batch in reader:
                for start in range(0, batch.num_rows, batch_size or batch.num_rows or 1):
                    part = batch.slice(start, batch_size) if batch_size else batch
                    yield pa.RecordBatch.from_arrays(part.columns, schema=schema)
        finally:
            reader.close()

    def _needed(self, columns: Columns) -> list[str]:
        """Return the columns to scan, each once."""
        if columns is None:
            return self.schema.names
        if isinstance(columns, Mapping):
            text = " ".join(str(expression) for expression in columns.values())
            found = [name for name in self.schema.names if mentions(text, name)]
            return found or self.schema.names[:1]  # constants: something must tell how many rows
        for name in columns:
            if name not in self.schema.names:
                raise RequestError(no_such("column", name, self.schema.names))
        return list(dict.fromkeys(columns)) or self.schema.names[:1]

    # What pyarrow builds on files; here all rows are read first

    def get_fragments(self, filter: Filter = None) -> Iterator[ds.Fragment]:
        return ds.dataset(self.to_table(filter=filter)).get_fragments()

    def join(self, right_dataset: ds.Dataset, *args: Any, **options: Any) -> ds.Dataset:
        return _in_memory(self).join(_in_memory(right_dataset), *args, **options)

    def join_asof(self, right_dataset: ds.Dataset, *args: Any, **options: Any) -> ds.Dataset:
        return _in_memory(self).join_asof(_in_memory(right_dataset), *args, **options)

    def sort_by(self, sorting: Any, **options: Any) -> ds.Dataset:
        return _in_memory(self).sort_by(sorting, **options)

    def replace_schema(self, schema: pa.Schema) -> ds.Dataset:
        """Return the rows with the columns of another schema, by name; new ones are null.

        Raises:
            RequestError: The values of a column do not fit its new type.
        """
        known = [name for name in dict.fromkeys(schema.names) if name in self.schema.names]
        rows = self.to_table(known or self.schema.names[:1])
        columns = [_as(rows, field) for field in schema]
        return ds.dataset(pa.table(columns, schema=schema))

    @property
    def partition_expression(self) -> pc.Expression:
        return pc.scalar(True)


def _in_memory(dataset: ds.Dataset) -> ds.Dataset:
    return ds.dataset(dataset.to_table()) if isinstance(dataset, SnapshotDataset) else dataset


def _as(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise RequestError(
            f"column {field.name!r} is {column.type}, which is no {field.type}: {error}"
        ) from error


def _listed(columns: Any) -> Any:
    return dict(columns) if isinstance(columns, Mapping) else list(columns)


def _both(one: Filter, other: Filter, schema: pa.Schema) -> Filter:
    if one is None or other is None:
        return other if one is None else one
    return _expression(one, schema) & _expression(other, schema)


def _expression(filter: str | pc.Expression, schema: pa.Schema) -> pc.Expression:
    return parse(filter, schema).expression if isinstance(filter, str) else filter


def _width(type_: pa.DataType) -> int:
    """Return the bits of a value; what has no fixed width counts as wider than what has."""
    try:
        return type_.bit_width
    except ValueError:
        return 1 << 20
