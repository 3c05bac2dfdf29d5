"""Row feed: brings the caller's batches into the shape of a pin's schema on their way to Lance.

Lance numbers fields by position where it can (`write_fragments(rows, path)`), so nothing here
relies on it: columns are matched by name, put into the schema's order and checked by type, and the
field ids of what was written are compared with the pin's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from siltstone.errors import InvariantError, SchemaMismatchError

Column = tuple[str, int, str]


class Feed:
    """An iterator of batches for Lance that keeps what the caller's side raised.

    Lance turns an exception of its source into an OSError with a text; `error` is the exception.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self.schema = schema
        self.error: BaseException | None = None
        self._batches = batches

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                if batch.num_rows:
                    yield arranged(batch, self.schema)
        except BaseException as error:
            self.error = error
            raise


def peeked(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]] | None:
    """Return the schema of the first batch that has rows, and all of them; None without rows."""
    source = iter(batches)
    for batch in source:
        if batch.num_rows:
            return batch.schema, chain([batch], source)
    return None


def narrowed(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return the fields of `schema` that `names` has, in the schema's order.

    Raises:
        SchemaMismatchError: A name that the schema lacks, or a column without which no row is.
    """
    given = list(names)
    unknown = sorted(set(given) - set(schema.names))
    if unknown or len(set(given)) < len(given):
        raise SchemaMismatchError(f"columns {given} do not fit {schema.names}")
    missing = [f.name for f in schema if f.name not in given and not f.nullable]
    if missing:
        raise SchemaMismatchError(f"columns {missing} are not nullable and have no values")
    return pa.schema([field for field in schema if field.name in given], schema.metadata)


def arranged(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` in the order of `schema`; nullable columns that it lacks are null."""
    if not batch.schema.equals(schema, check_metadata=True):
        narrowed(schema, batch.schema.names)
        batch = _recast(batch, schema)
    for field, column in zip(schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise SchemaMismatchError(f"column {field.name!r} has nulls and is not nullable")
    return batch


def _recast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if index < 0 else batch.column(index)
        if column.type != field.type:
            raise SchemaMismatchError(
                f"column {field.name!r} is {column.type}, the table has {field.type}"
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def columns_of(lance_schema: Any, schema: pa.Schema) -> tuple[Column, ...]:
    """Return (name, field id, type) of the columns of `schema` as Lance numbers them."""
    ids = {field.name(): field.id() for field in lance_schema.fields()}
    return tuple((field.name, ids[field.name], str(field.type)) for field in schema)


def check_field_ids(fragments: Iterable[Any], lance_schema: Any, names: Iterable[str]) -> None:
    """Refuse fragments whose files hold other fields, or other places for them, than by name.

    Raises:
        InvariantError: Values would land in other columns.
    """
    wanted = set(names)
    tree = [f for f in lance_schema.fields() if f.name() in wanted]
    expected = [number for field in tree for number in _leaves(field)]
    for fragment in fragments:
        for file in fragment.files:
            if list(file.fields) != expected:
                raise InvariantError(
                    f"Lance wrote fields {file.fields} to {file.path}, by name they are {expected}"
                )


def _leaves(field: Any) -> list[int]:
    children = field.children()
    return [n for child in children for n in _leaves(child)] if children else [field.id()]
