"""Row input: the rows of a JSON body.

Times are ISO 8601, bytes base64, decimals strings or numbers; the rest as it looks.
"""

from __future__ import annotations

import binascii
import datetime as dt
from base64 import b64decode
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from siltstone.errors import SchemaMismatchError
from siltstone.lance_namespace.errors import invalid

_SPELLED = frozenset(
    kind.id
    for kind in (
        *(pa.timestamp("s"), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
        *(pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)),
        *(pa.binary(), pa.large_binary(), pa.binary(1), pa.duration("s")),
    )
)
"""The types whose values JSON can only spell."""
_TYPE_ID = attrgetter("type.id")


def json_rows(rows: object, schema: pa.Schema) -> list[dict[str, Any]]:
    """Return rows of JSON as rows of Python values.

    Raises:
        Refused: They are no list of objects.
        SchemaMismatchError: A value that its column cannot hold.
    """
    if not isinstance(rows, list) or not {*map(type, rows)} <= {dict}:
        raise invalid("rows is a list of objects")
    if _SPELLED.isdisjoint(map(_TYPE_ID, schema)):
        return rows
    kinds = {field.name: field.type for field in schema}
    return [_values(row, kinds) for row in rows]


def json_values(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Return the values of one row; columns that are not known are left for the store to refuse."""
    return _values(row, {field.name: field.type for field in schema})


def _values(row: dict[str, Any], kinds: dict[str, pa.DataType]) -> dict[str, Any]:
    return {
        name: _value(value, kinds[name], name) if name in kinds else value
        for name, value in row.items()
    }


def json_key(key: object, schema: pa.Schema, names: Sequence[str]) -> object:
    """Return a key: a value, a list in key order, or an object by column."""
    if isinstance(key, dict):
        return json_values(key, schema)
    if isinstance(key, list):
        if len(key) != len(names):
            raise SchemaMismatchError(f"a key has the columns {list(names)}, not {key!r:.80}")
        parts = [_value(v, schema.field(n).type, n) for v, n in zip(key, names, strict=True)]
        return tuple(parts) if len(parts) != 1 else parts[0]
    return _value(key, schema.field(names[0]).type, names[0]) if names else key


def _value(value: Any, kind: pa.DataType, name: str) -> Any:
    if not isinstance(value, str) and not (pa.types.is_decimal(kind) and value is not None):
        return value
    try:
        return _of_text(value, kind)
    except (ValueError, InvalidOperation, binascii.Error, msgspec.ValidationError) as error:
        raise SchemaMismatchError(f"column {name!r} is {kind}: {value!r:.80}") from error


def _of_text(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return dt.datetime.fromisoformat(value)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    if pa.types.is_time(kind):
        return dt.time.fromisoformat(value)
    if pa.types.is_decimal(kind):
        return Decimal(str(value))
    return _of_bytes_or_span(value, kind)


def _of_bytes_or_span(value: Any, kind: pa.DataType) -> Any:
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return b64decode(value, validate=True)
    if types.is_duration(kind):
        return msgspec.convert(value, dt.timedelta)
    return value
