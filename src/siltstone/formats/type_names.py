"""Type names: the types that users give for columns, in the words of Arrow, SQL and Python.

"int64"  "timestamp[us, tz=UTC]"   Arrow's, as a stored schema has them
"INTEGER"  "varchar(20)"           SQL's, in any case
"list<string>"  "list<item: int>"  lists, as Arrow prints them, nested as well
int  datetime  list[str]           Python's
"int64 not null"                   the same, of a column that takes no null
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
import types
import typing
import uuid
from collections.abc import Mapping

import pyarrow as pa

from siltstone.errors import RequestError
from siltstone.formats.schema import NESTED_MAX, check_column_name, parse_type
from siltstone.formats.types import blobs

_SQL = {
    "tinyint": "int8",
    "smallint": "int16",
    "integer": "int64",
    "bigint": "int64",
    "real": "float32",
    "double precision": "float64",
    "varchar": "string",
    "char": "string",
    "character varying": "string",
    "varbinary": "binary",
    "bytea": "binary",
    "datetime": "timestamp[us]",
    "timestamptz": "timestamp[us, tz=UTC]",
    "timestamp with time zone": "timestamp[us, tz=UTC]",
}
_PYTHON: dict[type, str] = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    bytes: "binary",
    dt.datetime: "timestamp[us]",
    dt.date: "date32",
    dt.time: "time64[us]",
    dt.timedelta: "duration[us]",
    uuid.UUID: "uuid",
}
_AS_DATA = ": the second argument is the schema; give rows as data="
_WITH_VALUES = ("__arrow_c_stream__", "__arrow_c_array__", "__array__")
_NOT_NULL = re.compile(r"(.+?)\s+not\s+null", re.IGNORECASE)
_SIZED_TEXT = re.compile(r"(?:varchar|char|character varying)\s*\(\d+\)")
_NUMERIC = re.compile(r"(?:numeric|decimal)\s*\((\d+)\s*,\s*(\d+)\)")
_LIST = re.compile(r"(large_)?list<(?:\w+: ?)?(.+)>")


def arrow_schema_of(given: object) -> pa.Schema:
    """Return the Arrow schema for a user's schema: a pyarrow one, or a dict of name to type.

    Raises:
        RequestError: It is something else, or there is no such type.
    """
    if isinstance(given, pa.Schema):
        return given
    if not isinstance(given, Mapping):
        hint = _AS_DATA if _is_rows(given) else ""
        wanted = "a schema must be a pyarrow.Schema or a dict of name to type"
        raise RequestError(f"{wanted}; got {_shown(given)}{hint}")
    return pa.schema([field_of(check_column_name(name), kind) for name, kind in given.items()])


def _is_rows(given: object) -> bool:
    """Say whether something that is no schema, or no type, has values: rows, or a column."""
    return isinstance(given, list | tuple) or any(hasattr(given, each) for each in _WITH_VALUES)


def field_of(name: str, kind: object) -> pa.Field:
    """Return the column with this name and this type.

    Raises:
        RequestError: There is no such type.
    """
    if isinstance(kind, pa.DataType):
        return pa.field(name, kind)
    if not isinstance(kind, str):
        return pa.field(name, _of_python(kind))
    found = _NOT_NULL.fullmatch(kind.strip())
    text = found[1] if found else kind
    if text == blobs.BLOB:
        return pa.field(name, pa.large_binary(), nullable=found is None, metadata=blobs.MARK)
    return pa.field(name, type_named(text), nullable=found is None)


def type_named(text: str, depth: int = 0) -> pa.DataType:
    """Return the type called `text`, which has no "not null".

    Raises:
        RequestError: There is no such type.
    """
    if depth > NESTED_MAX:
        raise RequestError(f"a type is nested more than {NESTED_MAX} times")
    folded = " ".join(text.lower().split())
    if folded in _SQL or _SIZED_TEXT.fullmatch(folded):
        return parse_type(_SQL.get(folded, "string"))
    number, items = _NUMERIC.fullmatch(folded), _LIST.fullmatch(text.strip())
    if number:
        return parse_type(f"decimal128({number[1]}, {number[2]})")
    if items:
        make = pa.large_list if items[1] else pa.list_
        return make(type_named(items[2], depth + 1))
    return parse_type(text.strip() if "[" in text else folded)


def _of_python(kind: object, depth: int = 0) -> pa.DataType:
    if isinstance(kind, type) and kind in _PYTHON:
        return parse_type(_PYTHON[kind])
    parts = [part for part in typing.get_args(kind) if part is not type(None)]
    origin = typing.get_origin(kind)
    if len(parts) == 1 and depth <= NESTED_MAX:
        if origin is list:
            return pa.list_(_of_python(parts[0], depth + 1))
        if origin in {typing.Union, types.UnionType}:
            return _of_python(parts[0], depth + 1)
    if kind is decimal.Decimal:
        raise RequestError('a type Decimal needs its digits: "decimal(10, 2)"')
    raise RequestError(
        'a type must be a name ("int64", "string"), a type of Python (int, str, datetime) or a'
        f" pyarrow.DataType; got {_shown(kind)}{_AS_DATA if _is_rows(kind) else ''}"
    )


def _shown(given: object) -> str:
    """Return what was given in a few words: never a value of it, which may be a row."""
    return given.__name__ if isinstance(given, type) else f"a value of type {type(given).__name__}"
