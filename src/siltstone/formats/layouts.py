"""Layouts: views and dictionaries, in which callers lay out values that a table holds plainly.

    dictionary (categoricals of pandas, enums of Polars and DuckDB)   the type of its values
    string_view, binary_view (Polars)                                 string, binary

A column has neither type. Rows may come in them; where they give a table its columns, or would
leave a server, they are laid out plainly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa


def plain_type(kind: Any) -> pa.DataType:
    """Return the type of the values of `kind`, without views and dictionaries at any depth."""
    return next((make(kind) for is_of, make in _PLAIN if is_of(kind)), kind)


def _plain_map(kind: Any) -> pa.DataType:
    key, item = _plain_field(kind.key_field), _plain_field(kind.item_field)
    return cast("Any", pa.map_)(key, item, keys_sorted=kind.keys_sorted)


_PLAIN: tuple[tuple[Callable[[Any], bool], Callable[[Any], pa.DataType]], ...] = (
    (pa.types.is_dictionary, lambda kind: plain_type(kind.value_type)),
    (pa.types.is_string_view, lambda _: pa.string()),
    (pa.types.is_binary_view, lambda _: pa.binary()),
    (pa.types.is_list, lambda kind: pa.list_(_plain_field(kind.value_field))),
    (pa.types.is_large_list, lambda kind: pa.large_list(_plain_field(kind.value_field))),
    (pa.types.is_fixed_size_list,
     lambda kind: pa.list_(_plain_field(kind.value_field), kind.list_size)),
    (pa.types.is_struct, lambda kind: pa.struct(list(map(_plain_field, kind)))),
    (pa.types.is_map, _plain_map),
)  # fmt: skip


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of `schema` with the types of their values."""
    plain = pa.schema([_plain_field(field) for field in schema])
    return plain.with_metadata(schema.metadata) if schema.metadata else plain


def plain_column(column: Any) -> Any:
    """Return the values of a column, in one piece or in chunks, in their plain type.

    Raises:
        pa.ArrowException: Arrow cannot lay them out so.
    """
    wanted = plain_type(column.type)
    if wanted == column.type:
        return column
    if isinstance(column, pa.ChunkedArray):
        chunks = [plain_column(each) for each in cast("Any", column).chunks]
        return pa.chunked_array(chunks, cast("Any", wanted))
    return without_views(column).cast(wanted)


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the types of `schema`, the `plain_schema` of its own.

    Raises:
        pa.ArrowException: Arrow cannot lay it out so.
    """
    return pa.RecordBatch.from_arrays(list(map(plain_column, batch.columns)), schema=schema)


def without_views(column: Any) -> Any:
    """Return a dictionary of views (a Polars categorical) as one that Arrow can decode."""
    if not pa.types.is_dictionary(column.type):
        return column
    kind = column.type.value_type
    if not (pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)):
        return column
    plain = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
    return pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(plain))
