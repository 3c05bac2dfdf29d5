"""Rows: one value per column, as users write it, as the log and memtables keep it, as Arrow.

    user value      values of Python programs: datetime, date, Decimal, str, numpy scalars, ...
    storage value   values that msgpack and a dict hold exactly: timestamps, dates and times are
                    integers in the column's unit, decimals unscaled integers; others unchanged
    Arrow           the column's type

A row is a tuple of storage values in the schema's column order. Rows of schemas with nested columns
(or decimals of more than 18 digits) have no such form: they travel as Arrow batches. A uuid is its
16 bytes, a duration an integer in its unit, a date64 its milliseconds.

`conform` says what an Arrow column may hold: one rule in two forms.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.errors import SchemaMismatchError
from siltstone.formats.types import extensions
from siltstone.formats.types.extensions import UUID

Row = tuple[object, ...]
Convert = Callable[[object], object]

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose: the column has no zone
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DATE = dt.date(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_PER_MICROSECOND = {"s": (1, 1_000_000), "ms": (1, 1_000), "us": (1, 1), "ns": (1_000, 1)}
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DAY_MS = 86_400_000
_INT64 = 1 << 63
_NUMBERS = (int, float, np.floating, np.integer)
_WHOLE = (int, np.integer)
_SPANS = (np.datetime64, np.timedelta64)


class UnfitError(Exception):
    """A value does not fit its column; the caller names row and column."""


def _integer(kind: pa.DataType) -> Convert:
    bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)

    def convert(value: object) -> int:
        if type(value) is not int:
            if isinstance(value, bool | np.bool_):
                raise UnfitError
            try:
                value = operator.index(value)  # type: ignore[arg-type]
            except TypeError:
                raise UnfitError from None
        if not low <= value < high:
            raise UnfitError
        return value

    return convert


def _float(kind: pa.DataType) -> Convert:
    """Narrow floats are rounded at once: a row must be the same in memory and in Lance.

    A whole number that the column cannot hold is refused, as Arrow does.
    """
    narrow = {16: struct.Struct("<e"), 32: struct.Struct("<f")}.get(kind.bit_width)

    def convert(value: object) -> float:
        try:
            if type(value) is float:
                return value if narrow is None else narrow.unpack(narrow.pack(value))[0]
            found = _float_of(value)
            if narrow is not None:
                found = narrow.unpack(narrow.pack(found))[0]
        except OverflowError:
            raise UnfitError from None
        if isinstance(value, _WHOLE) and found != int(value):
            raise UnfitError
        return found

    return convert


def _float_of(value: object) -> float:
    # A span of NumPy is one of its whole numbers.
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, _NUMBERS):
        raise UnfitError
    return float(value)


def _boolean(value: object) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise UnfitError


def _string(value: object) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UnfitError from None
        return value if type(value) is str else str.__str__(value)  # an enum's is its name
    raise UnfitError


def _binary(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise UnfitError


def _fixed_binary(kind: pa.FixedSizeBinaryType) -> Convert:
    def convert(value: object) -> bytes:
        found = _binary(value)
        if len(found) != kind.byte_width:
            raise UnfitError
        return found

    return convert


def _uuid(value: object) -> bytes:
    """Take a UUID, its text, or its 16 bytes."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, str):
        try:
            return UUID(value).bytes
        except ValueError:
            raise UnfitError from None
    found = _binary(value)
    if len(found) != extensions.UUID_BYTES:
        raise UnfitError
    return found


def _json(value: object) -> str:
    text = _string(value)
    if not is_json(text):
        raise UnfitError
    return text


def is_json(text: str | bytes) -> bool:
    """Say whether a text is one JSON value."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _duration(kind: pa.DurationType) -> Convert:
    times, per = _PER_MICROSECOND[kind.unit]

    def convert(value: object) -> int:
        if type(value) is not dt.timedelta:
            return _by_arrow(value, kind)
        micros = value // _MICROSECOND
        found = micros // per * times
        if micros % per or not -_INT64 < found < _INT64:
            raise UnfitError
        return found

    return convert


def _timestamp(kind: pa.TimestampType) -> Convert:
    times, per = _PER_MICROSECOND[kind.unit]

    def convert(value: object) -> int:
        if type(value) is not dt.datetime:
            return _by_arrow(value, kind)
        epoch = _EPOCH if value.tzinfo is None else _EPOCH_UTC
        micros = (value - epoch) // _MICROSECOND
        found = micros // per * times
        # Nanoseconds end in the year 2262. The log would hold more, and nothing could read it.
        if micros % per or not -_INT64 < found < _INT64:
            raise UnfitError
        return found

    return convert


def _time(kind: pa.DataType) -> Convert:
    def convert(value: object) -> int:
        if not isinstance(value, dt.time):
            raise UnfitError
        return _by_arrow(value, kind)

    return convert


def _date(value: object) -> int:
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise UnfitError
    return (value - _EPOCH_DATE).days


def _decimal(kind: pa.Decimal128Type) -> Convert:
    def convert(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            raise UnfitError
        try:
            with localcontext(prec=100):
                unscaled = Decimal(value).scaleb(kind.scale)
                whole = int(unscaled)
        except (InvalidOperation, ValueError, OverflowError):
            raise UnfitError from None
        if whole != unscaled or abs(whole) >= 10**kind.precision:
            raise UnfitError
        return whole

    return convert


def _by_arrow(value: object, kind: pa.DataType) -> int:
    """Times, numpy datetimes and pandas timestamps: let Arrow decide, refuse bare numbers."""
    is_number = isinstance(value, np.generic) and not isinstance(value, _SPANS)
    if is_number or isinstance(value, str | int | float | bool):
        raise UnfitError
    if isinstance(value, np.datetime64) and not pa.types.is_timestamp(kind):
        raise UnfitError
    if isinstance(value, np.timedelta64) and not pa.types.is_duration(kind):
        raise UnfitError
    if isinstance(value, dt.datetime | dt.timedelta) and _is_finer(value, cast("Any", kind)):
        raise UnfitError
    try:
        if isinstance(value, _SPANS):
            array = pa.array(np.array([value])).cast(kind)
        else:
            array = pa.array([value], kind)
    except (pa.ArrowException, OverflowError, ValueError):  # the last is NaT in a zone
        raise UnfitError from None
    if array.null_count or (isinstance(value, dt.time) and array[0].as_py() != value):
        raise UnfitError  # NaT is not a value, and Arrow cuts what the unit does not hold
    return storage_values(array)[0]  # type: ignore[return-value]


def _is_finer(value: Any, kind: Any) -> bool:
    """Say whether a time of pandas, or a span, has digits that the unit would cut."""
    plural = "" if isinstance(value, dt.datetime) else "s"
    micros, more = getattr(value, f"microsecond{plural}"), getattr(value, f"nanosecond{plural}", 0)
    nanos = micros * 1_000 + more
    return bool(nanos % _NANOSECONDS.get(getattr(kind, "unit", "ns"), 1))


def _struct(kind: Any) -> Convert:
    """Lists and structs hold user values, each checked by its own type.

    Arrow alone would drop unknown fields, cut numbers, and let nulls into fields that have none.
    """
    fields = [(f.name, f.nullable, _inner(f.type)) for f in kind]
    names = {name for name, _, _ in fields}

    def convert(value: object) -> object:
        if not isinstance(value, Mapping) or not names.issuperset(value):
            raise UnfitError
        found: dict[str, object] = {}
        for name, is_nullable, inner in fields:
            part = value.get(name)
            if part is None and not is_nullable:
                raise UnfitError
            found[name] = None if part is None else inner(part)
        return found

    return convert


def _list(kind: Any) -> Convert:
    inner = _inner(kind.value_type)
    size = kind.list_size if pa.types.is_fixed_size_list(kind) else None

    def convert(value: object) -> object:
        parts = _parts(value)
        if not isinstance(parts, list | tuple) or (size is not None and len(parts) != size):
            raise UnfitError
        return [None if part is None else inner(part) for part in parts]

    return convert


def _parts(value: object) -> object:
    """Return the values of an array of NumPy; of times each as it is: Python's have no nanoseconds.

    NaT is null there, as Arrow has it.
    """
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind not in "mM" or not value.ndim:
        return value.tolist()
    if value.ndim > 1 or np.datetime_data(value.dtype)[0] == "D":
        return [*value] if value.ndim > 1 else value.tolist()
    return [None if is_null else part for part, is_null in zip(value, np.isnat(value), strict=True)]


def _map(kind: Any) -> Convert:
    """Take a mapping or pairs, each key once: Arrow alone keeps both."""
    key, item = _inner(kind.key_type), _inner(kind.item_type)

    def convert(value: object) -> object:
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list | tuple):
            raise UnfitError
        found: list[tuple[object, object]] = []
        for pair in pairs:
            if not isinstance(pair, list | tuple) or len(pair) != 2 or pair[0] is None:
                raise UnfitError
            found.append((key(pair[0]), None if pair[1] is None else item(pair[1])))
        if _is_any_twice([found_key for found_key, _ in found]):
            raise UnfitError
        return found

    return convert


def _is_any_twice(values: Sequence[object]) -> bool:
    try:
        return len(set(values)) < len(values)
    except TypeError:  # lists and structs have no hash
        return any(value in values[:place] for place, value in enumerate(values))


def _flat(value: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """Return the values of nested lists of a shape; a list without lists inside is flat already."""
    if not any(isinstance(part, list | tuple) for part in value):
        return list(value)
    if len(value) != shape[0] or not all(isinstance(part, list | tuple) for part in value):
        raise UnfitError
    if any(len(part) != shape[1] for part in value if len(shape) > 1):
        raise UnfitError
    return [each for part in value for each in _flat(part, shape[1:])]


def _tensor(kind: Any) -> Convert:
    """Take an array of the tensor's shape, lists of that shape, or all values in one list."""
    inner, shape = _inner(kind.value_type), tuple(kind.shape)

    def convert(value: object) -> object:
        value = _parts(value)
        if not isinstance(value, list | tuple):
            raise UnfitError
        value = _flat(value, shape)
        if len(value) != math.prod(shape):
            raise UnfitError
        return [None if part is None else inner(part) for part in value]

    return convert


def _inner(kind: pa.DataType) -> Convert:
    """Return the converter of a nested value: checked as a column's, kept as the user's value."""
    convert = converter(kind)
    return convert if is_plain(kind) else lambda value: to_user(convert(value), kind)


_CONVERTERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Convert]], ...] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_boolean, lambda _: _boolean),
    (pa.types.is_string, lambda _: _string),
    (pa.types.is_large_string, lambda _: _string),
    (pa.types.is_binary, lambda _: _binary),
    (pa.types.is_large_binary, lambda _: _binary),
    (pa.types.is_fixed_size_binary, _fixed_binary),
    (extensions.is_uuid, lambda _: _uuid),
    (extensions.is_json, lambda _: _json),
    (extensions.is_tensor, _tensor),
    (pa.types.is_duration, _duration),
    (pa.types.is_date64, lambda _: lambda value: _date(value) * _DAY_MS),
    (pa.types.is_map, _map),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date32, lambda _: _date),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_struct, _struct),
    (pa.types.is_time, _time),
)


def converter(kind: pa.DataType) -> Convert:
    """Return the function from a user's value to the storage value; it raises `UnfitError`."""
    for is_of, make in _CONVERTERS:
        if is_of(kind):
            return make(kind)
    return _list(kind)


def _storage_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the integer type whose bits are the storage value, None where Python's own serves."""
    if not pa.types.is_temporal(kind):
        return None
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def stored_check(kind: pa.DataType) -> Convert | None:
    """Return what raises `UnfitError` for what is no storage value; None: only Arrow can tell."""
    stored = _storage_type(kind) or kind
    return converter(stored) if is_plain(stored) and not pa.types.is_nested(stored) else None


def is_plain(kind: pa.DataType) -> bool:
    """Say whether the storage value is the user's."""
    return _storage_type(kind) is None and not (
        pa.types.is_decimal(kind) or extensions.is_uuid(kind)
    )


def storage_values(column: pa.Array) -> list[object]:
    """Return the storage values of an Arrow column."""
    column = extensions.unwrapped(column)
    kind = column.type
    as_integers = _storage_type(kind)
    if as_integers is not None:
        column = column.view(as_integers)
    values = cast("list[object]", column.to_pylist())
    if not pa.types.is_decimal(kind):
        return values
    with localcontext(prec=100):
        return [None if v is None else int(cast("Decimal", v).scaleb(kind.scale)) for v in values]


def from_storage_values(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return the Arrow column of storage values; the inverse of `storage_values`."""
    as_integers = _storage_type(kind)
    if as_integers is not None:
        return pa.array(values, as_integers).view(kind)
    if extensions.is_extension(kind):
        return extensions.wrapped(pa.array(values, extensions.storage_type(kind)), kind)
    if pa.types.is_decimal(kind):
        return _decimals(values, kind)
    return pa.array(values, kind)


def _decimals(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return decimals of their unscaled integers, by the bytes: Arrow would guess a type of each.

    It guesses too few digits where the scale is above the precision or below 0.
    """
    make = pa.decimal256 if pa.types.is_decimal256(kind) else pa.decimal128
    whole = pa.array(values, make(cast("Any", kind).precision, 0))
    return pa.Array.from_buffers(kind, len(whole), whole.buffers(), whole.null_count)


def batch_of(
    columns: Sequence[Sequence[object]], names: Sequence[str], kinds: Sequence[pa.DataType]
) -> pa.RecordBatch:
    """Return the batch of columns of storage values; no column at all: of no rows."""
    filled = columns or [()] * len(names)
    arrays = [from_storage_values(each, kind) for each, kind in zip(filled, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def to_user(value: object, kind: pa.DataType) -> object:
    """Return the user's Python value of a storage value."""
    if value is None or is_plain(kind):
        return value
    if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit == "us":
        return _EPOCH + dt.timedelta(microseconds=value)  # type: ignore[arg-type]
    return from_storage_values([value], kind)[0].as_py()


def value_getter(column: pa.Array) -> Callable[[int], object]:
    """Return the fastest function from an offset to the Python value: numpy's, if it is exact.

    `column[i].as_py()` costs 0.6 us for a number, 1.0 us for a text and 2.5 us for a timestamp,
    `ndarray.item` 0.06. Nothing is copied: they read the column's own bytes.
    """
    get = _stored_getter(column)
    if get is None:
        return lambda offset: column[offset].as_py()
    if not column.null_count:
        return get
    bits, start = memoryview(cast("pa.Buffer", column.buffers()[0])), column.offset

    def or_null(offset: int) -> object:
        place = start + offset
        return get(offset) if bits[place >> 3] >> (place & 7) & 1 else None

    return or_null


def _stored_getter(column: pa.Array) -> Callable[[int], object] | None:
    """Return what reads a value that is no null; None: only Arrow can."""
    kind, buffers = column.type, column.buffers()
    if not len(column) or len(buffers) < 2 or buffers[1] is None:
        return None
    if pa.types.is_integer(kind) or pa.types.is_float64(kind):
        return _items(column, kind.to_pandas_dtype())
    if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit == "us":
        micros = _items(column, np.int64)
        return lambda offset: _EPOCH + dt.timedelta(0, 0, micros(offset))
    if pa.types.is_string(kind) and buffers[2] is not None:
        ends, texts = _items(column, np.int32, 1), memoryview(buffers[2])
        return lambda offset: str(texts[ends(offset) : ends(offset + 1)], "utf-8")
    return None


def _items(column: pa.Array, dtype: Any, more: int = 0) -> Callable[[int], Any]:
    """Return what reads one value of a column's second buffer, and `more` behind its last row."""
    held: Any = column.buffers()[1]
    values = np.frombuffer(held, dtype, len(column) + column.offset + more)
    return values[column.offset :].item


def key_from_user(value: object, names: Sequence[str], types: Sequence[pa.DataType]) -> object:
    """Return the key for a user's value, tuple or list, or dict by column name."""
    if isinstance(value, Mapping):
        if set(value) != set(names):
            raise SchemaMismatchError(
                f"a key must have the columns {list(names)}; got {sorted(value)}"
            )
        parts: Sequence[object] = [value[name] for name in names]
    elif len(names) == 1:
        parts = [value]
    elif isinstance(value, tuple | list) and len(value) == len(names):
        parts = value
    else:
        raise SchemaMismatchError(f"a key must be a tuple of {list(names)}; got {short(value)}")
    converted = []
    for part, name, kind in zip(parts, names, types, strict=True):
        try:
            if part is None:
                raise UnfitError
            converted.append(converter(kind)(part))
        except UnfitError:
            raise SchemaMismatchError(f"key column {name!r} is {kind}, not {short(part)}") from None
    return converted[0] if len(converted) == 1 else tuple(converted)


def short(value: object) -> str:
    if hasattr(value, "__arrow_c_stream__"):  # rows, or a column of them: not their values
        return type(value).__name__
    try:
        text = " ".join(repr(value).split())  # one line, also of a table
    except ValueError:  # an integer of over 4,300 digits
        text = ""
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}".rstrip()
