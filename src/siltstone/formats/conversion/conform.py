"""Conform: Arrow batches as callers give them become batches of a table's columns, or are refused.

What a dict may hold is said in `rows`: one rule in two forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.errors import SchemaMismatchError, no_such
from siltstone.formats.manifest import Schema
from siltstone.formats.rows import is_json as is_json_text
from siltstone.formats.schema import key_names
from siltstone.formats.types.defaults import repeated
from siltstone.formats.types.extensions import (
    is_json,
    is_other_tensor,
    storage_type,
    unknown_in,
    unwrapped,
    why_unknown,
    wrapped,
)
from siltstone.formats.types.layouts import decoded


def conform(batch: pa.RecordBatch, schema: Schema, target: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with exactly the columns of `target`, by name.

    Missing ones have their default of `schema`, else null.

    Only safe casts (int32 to int64, string to large_string, ...): a value that a cast would change
    is refused.

    Raises:
        SchemaMismatchError: A column is unknown, doubled or of the wrong type, or may not be null.
    """
    found = batch.schema.names
    if len(set(found)) != len(found):
        raise SchemaMismatchError(f"columns appear twice in {found}")
    unknown = [name for name in found if target.get_field_index(name) < 0]
    if unknown:
        raise SchemaMismatchError(no_such("column", unknown, target.names))
    _refuse_unknown_types(batch.schema)
    _refuse_malformed(batch)
    defaults = {column.name: column.default for column in schema.columns}
    arrays = [
        _conform_column(batch, field)
        if field.name in found
        else repeated(defaults.get(field.name), field.type, batch.num_rows)
        for field in target
    ]
    keys = set(key_names(schema))
    for field, array in zip(target, arrays, strict=True):
        if array.null_count and (not field.nullable or field.name in keys):
            raise SchemaMismatchError(f"column {field.name!r} may not be null or missing")
        if pa.types.is_nested(field.type):
            _refuse_inside(field.name, array)
        if is_json(field.type):
            _refuse_no_json(field.name, array)
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _refuse_unknown_types(schema: pa.Schema) -> None:
    for field in schema:
        unknown = unknown_in(field)
        if unknown is not None:
            raise SchemaMismatchError(
                f"column {field.name!r} is given as {field.type}: {why_unknown(unknown)}"
            )


def _refuse_malformed(batch: pa.RecordBatch) -> None:
    """Arrow trusts its buffers: text that is no UTF-8 or an offset out of range would be logged."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            raise SchemaMismatchError(f"column {name!r} is malformed: {error}") from None


def _refuse_inside(name: str, column: Any) -> None:
    """Refuse a null in a field of a struct that has none, and a map with a key twice.

    Lance would refuse the null at the flush; DuckDB reads no map with equal keys.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        for field, child in zip(kind, column.flatten(), strict=True):
            if not field.nullable and child.filter(column.is_valid()).null_count:
                raise SchemaMismatchError(f"field {field.name!r} of {name!r} may not be null")
            _refuse_inside(f"{name}.{field.name}", child)
    elif _is_one_of(kind, _LISTS):
        _refuse_inside(name, column.flatten())
    elif pa.types.is_map(kind):
        pairs = as_lists(column)
        if _has_key_twice(pairs):
            raise SchemaMismatchError(f"a map in {name!r} has a key twice")
        _refuse_inside(name, pairs.flatten())


def _has_key_twice(pairs: Any) -> bool:
    """Say whether one of the lists of pairs has two with the same key."""
    lengths = pc.list_value_length(pairs).fill_null(0).to_numpy(zero_copy_only=False)
    keys = pairs.flatten().field(0)
    try:
        codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    except pa.ArrowNotImplementedError:  # of structs and lists Arrow makes no dictionary
        known: dict[str, int] = {}
        codes = np.array([known.setdefault(repr(key), len(known)) for key in keys], np.int64)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return len(np.unique(rows * (len(codes) + 1) + codes)) < len(codes)


def as_lists(column: Any) -> Any:
    """Return maps as lists of their pairs; Arrow's own cast and flatten do not take a map."""
    if column.null_count and column.offset:  # Arrow makes no list of a slice with nulls
        column = pa.concat_arrays([column, pa.nulls(0, column.type)])
    pairs = pa.StructArray.from_arrays(
        [column.keys, column.items], fields=list(column.type.field(0).type)
    )
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(column.offsets, pairs, mask=mask)


def _refuse_no_json(name: str, column: Any) -> None:
    """Refuse text that is not JSON: Lance would refuse it after the rows were acknowledged."""
    for text in column.storage:
        if text.is_valid and not is_json_text(text.as_py()):
            raise SchemaMismatchError(f"column {name!r} is json, not {text.as_py()[:60]!r}")


def _conform_column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    column = batch.column(field.name)
    if column.type == field.type:
        return column
    why_not = f"column {field.name!r} is {field.type}, not {column.type}"
    if is_other_tensor(column.type, field.type):
        raise SchemaMismatchError(why_not)
    try:
        given, wanted = unwrapped(decoded(column)), storage_type(field.type)
        if given.type != wanted and not _may_cast(given.type, wanted):
            raise SchemaMismatchError(why_not)
        converted = given.cast(wanted)
    except pa.ArrowException as error:
        raise SchemaMismatchError(f"{why_not}: {error}") from None
    if _became_infinite(given, converted):
        raise SchemaMismatchError(f"column {field.name!r} is {field.type}: a number is too large")
    return wrapped(converted, field.type)


def _became_infinite(given: Any, converted: Any) -> bool:
    """Say whether a finite number is infinite after a cast to a narrower float, in any part."""
    if pa.types.is_struct(converted.type) and pa.types.is_struct(given.type):
        whole = dict(zip(converted.type.names, converted.flatten(), strict=True))
        parts = zip(given.type.names, given.flatten(), strict=True)
        return any(_became_infinite(part, whole[name]) for name, part in parts)
    if pa.types.is_map(converted.type) and pa.types.is_map(given.type):
        pairs = ((given.keys, converted.keys), (given.items, converted.items))
        return any(_became_infinite(one, other) for one, other in pairs)
    if _is_one_of(converted.type, _LISTS) and pa.types.is_nested(given.type):
        return _became_infinite(given.flatten(), converted.flatten())
    return _is_number_infinite(given, converted)


def _is_number_infinite(given: Any, converted: Any) -> bool:
    if not pa.types.is_floating(converted.type) or pa.types.is_null(given.type):
        return False
    after = np.isinf(converted.to_numpy(zero_copy_only=False))
    if not after.any():
        return False
    if pa.types.is_floating(given.type):
        after &= ~np.isinf(given.to_numpy(zero_copy_only=False))
    return bool(after.any())


_FAMILIES = (
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_integer, pa.types.is_decimal),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary,
     pa.types.is_fixed_size_binary, pa.types.is_binary_view),
    (pa.types.is_timestamp,),
    (pa.types.is_date,),
    (pa.types.is_time,),
    (pa.types.is_duration,),
)  # fmt: skip
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def _is_one_of(kind: pa.DataType, family: Iterable[Callable[[pa.DataType], bool]]) -> bool:
    return any(is_of(kind) for is_of in family)


def _may_cast(given: Any, wanted: Any) -> bool:
    """A cast within a family of types; never text to number, or a float to an integer."""
    if pa.types.is_null(given):
        return True
    if pa.types.is_floating(given) and not pa.types.is_floating(wanted):
        return False
    if pa.types.is_nested(given):
        return _may_cast_nested(given, wanted)
    return any(_is_one_of(given, each) and _is_one_of(wanted, each) for each in _FAMILIES)


def _may_cast_nested(given: Any, wanted: Any) -> bool:
    """Lists to lists and structs to structs, no field dropped, each part by its own rule."""
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        pairs = ((given.key_type, wanted.key_type), (given.item_type, wanted.item_type))
        return all(one == other or _may_cast(one, other) for one, other in pairs)
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        names = {field.name: field.type for field in wanted}
        return all(
            field.name in names
            and (field.type == names[field.name] or _may_cast(field.type, names[field.name]))
            for field in given
        )
    if not _is_one_of(wanted, _LISTS) or not _is_one_of(given, _LISTS):
        return False
    inner, meant = cast("Any", given).value_type, wanted.value_type
    return inner == meant or _may_cast(inner, meant)
