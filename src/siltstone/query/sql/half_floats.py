"""Half floats: DuckDB has none, so a statement reads columns of float16 as float32, at any depth.

Each value is the same there. A filter of such a column is none that the table knows: `Statement`
shields these columns from the start.
"""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from siltstone.formats.types.extensions import is_tensor, storage_type, unwrapped
from siltstone.formats.types.layouts import replaced_type


def columns(schema: pa.Schema) -> list[str]:
    """Return the columns with half floats."""
    return [field.name for field in schema if widened_type(field.type) != field.type]


def widened_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that DuckDB reads for `kind`."""
    if is_tensor(kind):
        inner = widened_type(storage_type(kind))
        return kind if inner == storage_type(kind) else inner
    return replaced_type(kind, lambda leaf: pa.float32() if pa.types.is_float16(leaf) else None)


def widened_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that DuckDB reads for those of `schema`."""
    fields = [field.with_type(widened_type(field.type)) for field in schema]
    return pa.schema(fields, cast("Any", schema.metadata))


def widened(rows: pa.Table) -> pa.Table:
    """Return rows as DuckDB reads them."""
    schema = widened_schema(rows.schema)
    if schema.types == rows.schema.types:
        return rows
    batches = [widened_batch(batch, schema) for batch in rows.to_batches()]
    return pa.Table.from_batches(batches, schema)


def widened_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the types of the widened schema."""
    pairs = zip(batch.columns, schema.types, strict=True)
    columns: list[Any] = [
        column if column.type == kind else unwrapped(column).cast(kind) for column, kind in pairs
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
