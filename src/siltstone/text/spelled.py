"""Spelled: values for which JSON has no form, as the texts that stand for them.

    binary, also of a fixed size    base64
    date, time, timestamp           ISO 8601
    duration                        ISO 8601: PT90S
    decimal                         a string, or a number
    map                             an object, or a list of pairs
    NaN and the infinities          "NaN", "Infinity", "-Infinity"

All other values are as they look; a text where another type is wanted is left for the store to
refuse. Nothing is cut: a text with more digits than its type has is refused.
"""

from __future__ import annotations

import binascii
import datetime as dt
import math
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.errors import SchemaMismatchError

ERRORS = (ValueError, InvalidOperation, binascii.Error, msgspec.ValidationError)
"""What `value_of` raises for a text that is invalid for its type."""
_MICROSECOND_DIGITS, _NANOSECOND_DIGITS = 6, 9
_FRACTION = re.compile(r"[.,](\d+)")
_WORD_OF = {math.inf: "Infinity", -math.inf: "-Infinity"}  # nan is not equal to itself
_WORDS = {"NaN": math.nan, **{word: value for value, word in _WORD_OF.items()}}
WORDS = tuple(f'"{word}"'.encode() for word in _WORDS)
_SECONDS = re.compile(r"([+-]?)PT(\d+)[.,](\d{7,9})S")


def value_in(name: str, kind: Any, value: object) -> Any:
    """Return the Python value that a value of JSON stands for, in a column.

    Raises:
        SchemaMismatchError: It stands for none.
    """
    try:
        return value_of(value, kind)
    except ERRORS as error:
        raise SchemaMismatchError(f"column {name!r} is {kind}: {value!r:.80}") from error


def value_of(value: Any, kind: Any) -> Any:
    """Return the Python value that a value of JSON stands for, in a column of type `kind`."""
    if value is None or kind is None:
        return value
    if isinstance(value, str) or pa.types.is_decimal(kind):
        read = next((read for is_of, read in _TEXTS if is_of(kind)), None)
        return value if read is None else read(value, kind)
    if isinstance(value, list):
        return _list(value, kind)
    if isinstance(value, dict) and pa.types.is_struct(kind):
        kinds = {field.name: field.type for field in kind}
        return {name: value_of(part, kinds.get(name)) for name, part in value.items()}
    return _pairs(value, kind) if pa.types.is_map(kind) else value


def _list(value: list[Any], kind: Any) -> Any:
    kind = kind.storage_type if isinstance(kind, pa.FixedShapeTensorType) else kind
    if not _is_list(kind):
        return _pairs(value, kind) if pa.types.is_map(kind) else value
    if pa.types.is_floating(kind.value_type) and str not in set(map(type, value)):
        return value  # a vector has many
    return [value_of(part, kind.value_type) for part in value]


def _pairs(value: Any, kind: Any) -> Any:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        return value
    return [(value_of(k, kind.key_type), value_of(v, kind.item_type)) for k, v in pairs]


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list | tuple) and len(cast("Any", pair)) == 2


def listed(column: pa.Array) -> list[Any]:
    """Return the Python values of a column, with texts for the numbers that JSON has no form for.

    Without them JSON would have a null there.
    """
    values: list[Any] = column.to_pylist()
    return values if _is_finite(column) else [_worded(value) for value in values]


def _is_finite(column: Any) -> bool:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _is_finite(column.storage)
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is not False
    if pa.types.is_map(kind):
        return _is_finite(column.keys) and _is_finite(column.items)
    if pa.types.is_struct(kind):
        return all(_is_finite(column.field(place)) for place in range(kind.num_fields))
    return _is_finite(column.flatten()) if _is_list(kind) else True


def _worded(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else _WORD_OF.get(value, "NaN")
    if isinstance(value, list | tuple):
        return [_worded(part) for part in value]
    if isinstance(value, dict):
        return {name: _worded(part) for name, part in value.items()}
    return value


def span_text(nanos: int) -> str:
    """Return a duration of nanoseconds as a text; Python's own end at the microsecond."""
    seconds, rest = divmod(abs(nanos), 10**_NANOSECOND_DIGITS)
    fraction = f".{rest:0{_NANOSECOND_DIGITS}}" if rest else ""
    return f"{'-' if nanos < 0 else ''}PT{seconds}{fraction}S"


def has_floats(kind: Any) -> bool:
    """Say whether values of a type are, or have inside, numbers of which JSON lacks some."""
    kind = kind.storage_type if isinstance(kind, pa.FixedShapeTensorType) else kind
    return any(pa.types.is_floating(each) for each in types_in(kind))


def has_spelled(kind: Any) -> bool:
    """Say whether all values of a type, or values inside of them, are spelled."""
    if kind.id in AS_THEY_LOOK:
        return False
    inner = [each for each in types_in(kind) if not pa.types.is_floating(each)]
    return pa.types.is_map(kind) or any(is_of(each) for each in inner for is_of, _ in _TEXTS)


AS_THEY_LOOK = frozenset(
    kind.id
    for kind in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.string()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.large_string()),
    )
)


def types_in(kind: Any) -> Iterator[Any]:
    """Yield a type, and the types inside of it at any depth."""
    yield kind
    if pa.types.is_nested(kind):
        for place in range(kind.num_fields):
            yield from types_in(kind.field(place).type)


def _is_list(kind: Any) -> bool:
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def is_binary(kind: Any) -> bool:
    """Say whether values of a type are bytes."""
    types = pa.types
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def _digits(text: str) -> int:
    fraction = _FRACTION.search(text)
    return len(fraction[1]) if fraction else 0


def _timestamp(text: str, kind: Any) -> object:
    if _digits(text) <= _MICROSECOND_DIGITS:
        return dt.datetime.fromisoformat(text)
    exact: Any = pa.scalar(text).cast(
        pa.timestamp("ns", tz=kind.tz)
    )  # refuses more than nine digits
    return np.datetime64(exact.value, "ns")


def _time(text: str, _: Any) -> object:
    if _digits(text) > _MICROSECOND_DIGITS:
        raise ValueError(text)
    return dt.time.fromisoformat(text)


def _duration(text: str, _: Any) -> object:
    if _digits(text) <= _MICROSECOND_DIGITS:
        return msgspec.convert(text, dt.timedelta)
    found = _SECONDS.fullmatch(text)
    if found is None:
        raise ValueError(text)
    nanos = int(found[2] + found[3].ljust(_NANOSECOND_DIGITS, "0"))
    return np.timedelta64(-nanos if found[1] == "-" else nanos, "ns")


_TEXTS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], object]], ...] = (
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, lambda text, _: dt.date.fromisoformat(text)),
    (pa.types.is_time, _time),
    (pa.types.is_decimal, lambda value, _: Decimal(str(value))),
    (is_binary, lambda text, _: b64decode(text, validate=True)),
    (pa.types.is_duration, _duration),
    (pa.types.is_floating, lambda text, _: _WORDS.get(text, text)),
)
