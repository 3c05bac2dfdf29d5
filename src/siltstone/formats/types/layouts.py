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

from siltstone.text.spelled import types_in


def plain_type(kind: Any) -> pa.DataType:
    """Return the type of the values of `kind`, without views and dictionaries at any depth."""
    return replaced_type(kind, _plain_leaf)


def _plain_leaf(kind: Any) -> pa.DataType | None:
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else None


def replaced_type(kind: Any, replacement: Callable[[Any], pa.DataType | None]) -> pa.DataType:
    """Return a type with other types inside: `replacement` returns None for one that stays."""
    found = replacement(kind)
    if found is not None:
        return found
    make = next((make for is_of, make in _NESTED if is_of(kind)), None)
    if make is None:
        return kind
    return make(kind, lambda field: field.with_type(replaced_type(field.type, replacement)))


def _map_type(kind: Any, inner: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    key, item = inner(kind.key_field), inner(kind.item_field)
    return cast("Any", pa.map_)(key, item, keys_sorted=kind.keys_sorted)


_NESTED: tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], pa.DataType]], ...] = (
    (pa.types.is_list, lambda kind, inner: pa.list_(inner(kind.value_field))),
    (pa.types.is_large_list, lambda kind, inner: pa.large_list(inner(kind.value_field))),
    (pa.types.is_fixed_size_list,
     lambda kind, inner: pa.list_(inner(kind.value_field), kind.list_size)),
    (pa.types.is_struct, lambda kind, inner: pa.struct(list(map(inner, kind)))),
    (pa.types.is_map, _map_type),
)  # fmt: skip


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of `schema` with the types of their values."""
    plain = pa.schema([field.with_type(plain_type(field.type)) for field in schema])
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
    return decoded(column).cast(wanted)


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the types of `schema`, which is the `plain_schema` of its schema.

    Raises:
        pa.ArrowException: Arrow cannot lay it out so.
    """
    return pa.RecordBatch.from_arrays(list(map(plain_column, batch.columns)), schema=schema)


# dictionaries: Arrow's own cast decodes none of views, and none of lists, structs and maps


def decoded(column: Any) -> Any:
    """Return a column with the values of dictionaries in their place, at any depth.

    Values that lie in views are large ones then. The other parts of the column stay as they are.

    Raises:
        pa.ArrowException: They do not fit one array.
    """
    if not any(map(pa.types.is_dictionary, types_in(column.type))):
        return column
    return next(decode for is_of, decode in _DECODED if is_of(column.type))(column)


def _values(column: Any) -> Any:
    values = decoded(column.dictionary)
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return values.take(column.indices)


def _struct(column: Any) -> Any:
    parts = [decoded(column.field(place)) for place in range(column.type.num_fields)]
    fields = [f.with_type(part.type) for f, part in zip(column.type, parts, strict=True)]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)


def _list(column: Any) -> Any:
    inner = decoded(column.values)
    field = column.type.value_field.with_type(inner.type)
    if pa.types.is_fixed_size_list(column.type):
        return _over(column, pa.list_(field, column.type.list_size), inner)
    make = pa.large_list if pa.types.is_large_list(column.type) else pa.list_
    return _over(column, make(field), inner)


def _map(column: Any) -> Any:
    keys, items = decoded(column.keys), decoded(column.items)
    fields = [column.type.key_field, column.type.item_field]
    fields = [f.with_type(part.type) for f, part in zip(fields, (keys, items), strict=True)]
    kind = cast("Any", pa.map_)(*fields, keys_sorted=column.type.keys_sorted)
    return _over(column, kind, pa.StructArray.from_arrays([keys, items], fields=fields))


def _over(column: Any, kind: pa.DataType, inner: pa.Array) -> pa.Array:
    """Return lists with other values in the same places: their own buffers come first."""
    own = column.buffers()[: 1 if pa.types.is_fixed_size_list(kind) else 2]
    children: Any = [inner]
    return pa.Array.from_buffers(kind, len(column), own, column.null_count, column.offset, children)


_DECODED: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_dictionary, _values),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (lambda _: True, _list),
)
