"""Defaults: the value of a column that a row does not name, as text in a schema, a field, and rows.

    Column.default    what a new row takes that leaves the column out; a null that is given stays
    Column.initial    what rows have that were written before the column was added

A text is Arrow's form of the value: `5`, `2026-01-01`, `1.20`; bytes and UUIDs are hexadecimal, a
duration is a number of its unit. Fields of Arrow carry both texts in their metadata: the default to
readers of a schema and into a new table, the initial value to whatever reads rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa

from siltstone.errors import RequestError, SchemaMismatchError, no_such
from siltstone.formats.rows import UnfitError, converter, from_storage_values, short, storage_values
from siltstone.formats.types.blobs import is_blob
from siltstone.formats.types.casts import cast_column
from siltstone.formats.types.extensions import (
    is_tensor,
    is_uuid,
    storage_type,
    unwrapped,
    wrapped,
)
from siltstone.text.spelled import is_binary

DEFAULT, INITIAL = b"siltstone:default", b"siltstone:initial"
CHARACTERS_MAX = 1_024


def text_of(field: pa.Field, value: object) -> str | None:
    """Return a value as the text of a column's default; None is no default.

    Raises:
        SchemaMismatchError: The value is of another type.
        RequestError: The column can have no default, or the text is too long.
    """
    if value is None:
        return None
    kind, name = field.type, field.name
    if pa.types.is_nested(kind) or is_tensor(kind) or is_blob(field):
        raise RequestError(f"column {name!r} of type {kind} can have no default: it is no scalar")
    try:
        column = from_storage_values([converter(kind)(value)], kind)
    except UnfitError:
        raise SchemaMismatchError(
            f"the default of column {name!r} is {kind}, not {short(value)}"
        ) from None
    text = _text(column)
    if len(text) > CHARACTERS_MAX:
        raise RequestError(
            f"the default of column {name!r} has {len(text)} characters; at most {CHARACTERS_MAX}"
        )
    return text


def _text(column: pa.Array) -> str:
    kind = column.type
    if _is_bytes(kind):
        return cast("bytes", storage_values(column)[0]).hex()
    if pa.types.is_duration(kind):
        return str(storage_values(column)[0])
    return cast("Any", unwrapped(column)).cast(pa.string())[0].as_py()


def _is_bytes(kind: pa.DataType) -> bool:
    return is_uuid(kind) or is_binary(kind)


@lru_cache(maxsize=4096)
def column_of(text: str, kind: pa.DataType) -> pa.Array:
    """Return the value of a text, as one row.

    Raises:
        UnfitError: The text is no value of the type.
    """
    try:
        for is_of, read in _READ:
            if is_of(kind):
                return from_storage_values([converter(kind)(read(text))], kind)
        if pa.types.is_duration(kind):
            return pa.array([int(text)], pa.int64()).view(kind)
        return wrapped(pa.array([text]).cast(storage_type(kind)), kind)
    except (pa.ArrowException, ValueError, ArithmeticError) as error:
        raise UnfitError from error


_READ: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], object]], ...] = (
    (_is_bytes, bytes.fromhex),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_time, dt.time.fromisoformat),
)


def in_other_type(text: str | None, old: pa.DataType, new: pa.DataType) -> str | None:
    """Return the text of a value of one type as that of the value that it has in another.

    Raises:
        UncastError: It has none.
    """
    return None if text is None else _text(cast_column(column_of(text, old), new))


def stored_of(text: str, kind: pa.DataType) -> object:
    """Return the value of a column's text as a storage value."""
    return storage_values(column_of(text, kind))[0]


def repeated(text: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """Return a column with the value of a text in each row; None: of nulls."""
    if text is None:
        return pa.nulls(rows, cast("Any", kind))
    return wrapped(pa.repeat(unwrapped(column_of(text, kind))[0], rows), kind)


def absent(field: pa.Field, rows: int) -> pa.Array:
    """Return a column as rows have it that were written before it was added."""
    return repeated(initial_in(field), field.type, rows)


def initial_in(field: pa.Field) -> str | None:
    """Return the initial value that a field carries; None: it is null."""
    return _carried(field, INITIAL)


def default_in(field: pa.Field) -> str | None:
    """Return the default that a field carries, in its canonical form; None: it has none.

    Raises:
        RequestError, SchemaMismatchError: As `text_of`; or the text is no value of the type.
    """
    text = _carried(field, DEFAULT)
    if text is None:
        return None
    if len(text) <= CHARACTERS_MAX and not pa.types.is_nested(field.type):
        try:
            return _text(column_of(text, field.type))
        except UnfitError:
            raise SchemaMismatchError(
                f"the default of column {field.name!r} is {field.type}, not {text!r:.80}"
            ) from None
    return text_of(field, text)


def _carried(field: pa.Field, name: bytes) -> str | None:
    found = (field.metadata or {}).get(name)
    return None if found is None else found.decode()


def carrying(field: pa.Field, name: bytes, text: str | None) -> pa.Field:
    """Return a field that carries the text of a default or an initial value; None: none."""
    notes: Any = {n: t for n, t in (field.metadata or {}).items() if n != name}
    if text is not None:
        notes[name] = text.encode()
    return field.with_metadata(notes) if notes else field.remove_metadata()


def plain_of(schema: Iterable[pa.Field]) -> pa.Schema:
    """Return columns as the files of Lance have them: what they carry is true of one schema."""
    return pa.schema([carrying(carrying(f, DEFAULT, None), INITIAL, None) for f in schema])


def with_defaults(schema: pa.Schema, given: Mapping[str, object]) -> pa.Schema:
    """Return columns that carry the defaults that a caller gives, by name.

    Raises:
        RequestError, SchemaMismatchError: As `text_of`; they are no mapping, or name no column.
    """
    if not isinstance(given, Mapping):
        raise RequestError(f"defaults must be a dict of column to value; got {short(given)}")
    for name in given:
        if name not in schema.names:
            raise SchemaMismatchError(no_such("column", name, schema.names))
    return pa.schema([
        carrying(each, DEFAULT, text_of(each, given[each.name])) if each.name in given else each
        for each in schema
    ], cast("Any", schema.metadata))  # fmt: skip
