"""Row input: the rows of a body, as Arrow or JSON.

    Arrow    message by message: head ─▶ rows and bytes (`arrow_weight`) ─▶ within limits? ─▶ decode
    JSON     times are ISO 8601, bytes base64, decimals strings or numbers; the rest as it looks

What was decoded of Arrow is validated whole: offsets that point outside of their buffers would be
read otherwise.
"""

from __future__ import annotations

import binascii
import datetime as dt
import struct
from base64 import b64decode
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from siltstone.errors import SchemaMismatchError
from siltstone.formats.arrow_weight import weights
from siltstone.server.rest.limits import Limits
from siltstone.server.rest.refusals import Refused, invalid


def arrow_rows(body: bytes, limits: Limits) -> pa.Table:
    """Return the rows of an Arrow IPC stream.

    Raises:
        Refused: It is invalid, lies about its lengths, or would be more than the limits allow.
    """
    try:
        _weigh(body, limits)
        with pa.ipc.open_stream(body) as stream:
            if len(stream.schema) > limits.columns_max:
                raise invalid(f"a body has at most {limits.columns_max} columns")
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, struct.error, IndexError, UnicodeDecodeError) as error:
        raise invalid(f"the body is not an Arrow IPC stream: {_words(error)}") from None
    return table


def _words(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _weigh(body: bytes, limits: Limits) -> None:
    """Refuse a stream that would be too much, by what its messages say."""
    rows = nbytes = 0
    for more_rows, more_bytes in weights(body):
        rows, nbytes = rows + more_rows, nbytes + more_bytes
        if rows > limits.rows_max:
            raise _too_much(f"{limits.rows_max} rows")
        if nbytes > limits.decompressed_bytes_max:
            raise _too_much(f"{limits.decompressed_bytes_max} bytes when decompressed")


def _too_much(most: str) -> Refused:
    return invalid(f"a body has at most {most}; send the rows in several calls of one transaction")


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
