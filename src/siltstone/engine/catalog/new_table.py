"""New table: what a table is created from: a schema, rows, or rows of which it takes the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from siltstone.engine.catalog.row_input import dicts_of, stream_of
from siltstone.errors import RequestError, SchemaMismatchError
from siltstone.formats.rows import UnfitError, converter, short
from siltstone.formats.type_names import arrow_schema_of
from siltstone.formats.types.defaults import plain_of, with_defaults
from siltstone.formats.types.layouts import plain_schema, types_in


def schema_and_rows(schema: object, data: object, defaults: object) -> tuple[pa.Schema, object]:
    """Return the columns of a new table, and its rows: None, or what an insert takes, once.

    Raises:
        RequestError: Neither a schema nor rows that have one; or a column can have no default.
        SchemaMismatchError: The values of a column have no type, or several; or a default is of
            another type, or of no column.
    """
    columns, rows = _columns_and_rows(schema, data)
    return defaulted(columns, defaults), rows


def defaulted(columns: pa.Schema, defaults: object) -> pa.Schema:
    """Return columns with the defaults that a caller gives; None: with those that they carry."""
    return columns if defaults is None else with_defaults(columns, cast("Any", defaults))


def defined(schema: object, defaults: object) -> object:
    """Return a schema that a caller gives, with the defaults, if both are given."""
    given = schema is not None and defaults is not None
    return defaulted(arrow_schema_of(schema), defaults) if given else schema


def _columns_and_rows(schema: object, data: object) -> tuple[pa.Schema, object]:
    columns, data = understood(schema, data)
    if columns is not None:
        return columns, data
    if data is None:
        raise RequestError("a table needs a schema or data; give one of them")
    stream = stream_of(data)
    if stream is None:
        table = _table_of(dicts_of(data))
        return _columns_of(table.schema), table
    return _columns_of(stream.schema), stream


def understood(schema: object, data: object) -> tuple[pa.Schema | None, object]:
    """Return the columns that a caller gives, if any, and the rows: a dict of lists as Arrow data.

    Raises:
        RequestError: It is no schema, or the lists are not equally long.
        SchemaMismatchError: The values of a list have no type, or several.
    """
    columns = None if schema is None else arrow_schema_of(schema)
    if not isinstance(data, Mapping) or not data or not all(map(_is_column, data.values())):
        return columns, data
    if columns is None:
        return None, _in_columns(data)
    is_row = all(_is_value(values, columns, name) for name, values in data.items())
    return columns, data if is_row else _in_rows(data)


def _is_value(values: Any, columns: pa.Schema, name: str) -> bool:
    """Say whether a list is one value of its column, not several."""
    return name in columns.names and _fits(values, columns.field(name).type)


def _fits(values: Any, kind: pa.DataType) -> bool:
    first = next((each for each in values if each is not None), None)
    if first is None or not pa.types.is_nested(kind) or pa.types.is_struct(kind):
        return False
    if pa.types.is_map(kind):
        return isinstance(first, tuple)
    inside = kind.field(0).type
    is_list = _is_column(first)
    return _fits(first, inside) if pa.types.is_nested(inside) and is_list else not is_list


def _in_rows(data: Mapping[str, Any]) -> object:
    """Return a dict of equally long lists as rows, which the schema of a caller is held against.

    Raises:
        RequestError: The lists are not equally long.
    """
    _check_lengths(data)
    if not all(isinstance(values, list | tuple) for values in data.values()):
        return _in_columns(data)
    return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]


def _in_columns(data: Mapping[str, Any]) -> object:
    """Return a dict of equally long lists as Arrow data, as pandas takes it.

    Raises:
        RequestError: The lists are not equally long.
        SchemaMismatchError: The values of a column have no type, or several.
    """
    _check_lengths(data)
    return pa.table({name: _column_of(name, values) for name, values in data.items()})


def _check_lengths(data: Mapping[str, Any]) -> None:
    lengths = {name: len(values) for name, values in data.items()}
    if len({*lengths.values()}) > 1:
        told = ", ".join(f"{name!r} has {lengths[name]} values" for name in lengths)
        raise RequestError(f"the columns of data are not equally long: {told}")


def _is_column(values: object) -> bool:
    return isinstance(values, list | tuple) or (
        hasattr(values, "__len__")
        and getattr(values, "ndim", 1) != 0
        and any(
            hasattr(values, each)
            for each in ("__array__", "__arrow_c_array__", "__arrow_c_stream__")
        )
    )


def _table_of(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Return rows of Python as Arrow data, with the columns that any of them has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise RequestError("data without rows has no schema: give a schema")
    columns: dict[str, Any] = {}
    for name in names:
        if not isinstance(name, str):
            raise RequestError(f"the name of a column must be a string; got {name!r}")
        columns[name] = _column_of(name, [row.get(name) for row in rows])
    return pa.table(columns)


def _column_of(name: str, values: Sequence[object]) -> pa.Array:
    """Return a column of the type that Arrow finds, if each value is the same in it.

    Arrow takes the first value's type where others lose: a time of day after a date, a zone.
    """
    try:
        column = pa.array(cast("Any", values))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SchemaMismatchError(
            f"the values of {name!r} have no common type; give a schema: {error}"
        ) from error
    kind = column.type
    if any(map(pa.types.is_null, types_in(kind))):
        return column  # refused with the schema, or no value is there that could change
    if _has_mixed_zones(values, kind):
        raise SchemaMismatchError(
            f"the values of {name!r} have no common type; give a schema: some times have a zone,"
            " and others have none"
        )
    convert = converter(kind)
    for value in values:
        try:
            if value is not None:
                convert(value)
        except UnfitError:
            raise SchemaMismatchError(
                f"the values of {name!r} have no common type; give a schema: {short(value)} does"
                f" not fit {kind}"
            ) from None
    return column


def _has_mixed_zones(values: Iterable[Any], kind: Any) -> bool:
    """Say whether some times of a column have a zone and others none, at the same place in it."""
    known = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        return any(_has_mixed_zones((value.get(f.name) for value in known), f.type) for f in kind)
    if pa.types.is_list(kind):
        return _has_mixed_zones((part for value in known for part in value), kind.value_type)
    if not pa.types.is_timestamp(kind):
        return False
    return len({getattr(value, "tzinfo", None) is not None for value in known}) > 1


def _columns_of(schema: pa.Schema) -> pa.Schema:
    """Return the columns that a table can have for those of the data."""
    for field in schema:
        if pa.types.is_null(field.type):
            raise SchemaMismatchError(
                f"column {field.name!r} of the data has no type, only nulls; give a schema"
            )
    return plain_of(plain_schema(schema))
