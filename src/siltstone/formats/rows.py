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

from siltstone.errors import SchemaMismatchError, no_such
from siltstone.formats import extensions
from siltstone.formats.extensions import UUID
from siltstone.formats.manifest import Schema
from siltstone.formats.schema import decode_type, to_arrow

Row = tuple[object, ...]
Convert = Callable[[object], object]

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose: the column has no zone
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DATE = dt.date(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_PER_MICROSECOND = {"s": (1, 1_000_000), "ms": (1, 1_000), "us": (1, 1), "ns": (1_000, 1)}
_DAY_MS = 86_400_000
_INT64 = 1 << 63
_PACKED_DECIMAL_DIGITS_MAX = 18
_MISSING = object()
_NUMBERS = (int, float, np.floating, np.integer)


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
    """Narrow floats are rounded at once: a row must be the same in memory and in Lance."""
    narrow = {16: struct.Struct("<e"), 32: struct.Struct("<f")}.get(kind.bit_width)

    def convert(value: object) -> float:
        try:
            if type(value) is not float:
                if isinstance(value, bool) or not isinstance(value, _NUMBERS):
                    raise UnfitError
                value = float(value)
            return value if narrow is None else narrow.unpack(narrow.pack(value))[0]
        except OverflowError:
            raise UnfitError from None

    return convert


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
        return value if type(value) is str else str(value)
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


def _date64(value: object) -> int:
    return _date(value) * _DAY_MS


def _timestamp(kind: pa.TimestampType) -> Convert:
    times, per = _PER_MICROSECOND[kind.unit]

    def convert(value: object) -> int:
        if type(value) is not dt.datetime:
            return _by_arrow(value, kind)
        epoch = _EPOCH if value.tzinfo is None else _EPOCH_UTC
        micros = (value - epoch) // _MICROSECOND
        if micros % per:
            raise UnfitError
        return micros // per * times

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
    if isinstance(value, str | int | float | bool):
        raise UnfitError
    if isinstance(value, np.datetime64) and not pa.types.is_timestamp(kind):
        raise UnfitError  # Arrow would take the time of day, and drop the date
    if isinstance(value, np.timedelta64) and not pa.types.is_duration(kind):
        raise UnfitError
    try:
        if isinstance(value, np.datetime64 | np.timedelta64):
            array = pa.array(np.array([value])).cast(kind)
        else:
            array = pa.array([value], kind)
    except (pa.ArrowException, OverflowError):
        raise UnfitError from None
    if array.null_count or (isinstance(value, dt.time) and array[0].as_py() != value):
        raise UnfitError  # NaT is not a value, and Arrow cuts what the unit does not hold
    return storage_values(array)[0]  # type: ignore[return-value]


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
        parts = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(parts, list | tuple) or (size is not None and len(parts) != size):
            raise UnfitError
        return [None if part is None else inner(part) for part in parts]

    return convert


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
        if isinstance(value, np.ndarray):
            value = value.tolist()
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
    return convert if _is_plain(kind) else lambda value: to_user(convert(value), kind)


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
    (pa.types.is_date64, lambda _: _date64),
    (pa.types.is_map, _map),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date32, lambda _: _date),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_struct, _struct),
    (pa.types.is_time, lambda kind: lambda value: _by_arrow(value, kind)),
)


def converter(kind: pa.DataType) -> Convert:
    """Return the function from a user's value to the storage value; it raises `UnfitError`."""
    for is_of, make in _CONVERTERS:
        if is_of(kind):
            return make(kind)
    return _list(kind)


def _storage_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the integer type whose bits are the storage value, None where Python's own serves."""
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_duration(kind) or pa.types.is_date64(kind):
        return pa.int64()
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    return None


def _is_plain(kind: pa.DataType) -> bool:
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
        with localcontext(prec=100):
            scaled = [None if v is None else Decimal(v).scaleb(-kind.scale) for v in values]  # type: ignore[arg-type]
            return pa.array(scaled, kind)
    return pa.array(values, kind)


def batch_of(
    columns: Sequence[Sequence[object]], names: Sequence[str], kinds: Sequence[pa.DataType]
) -> pa.RecordBatch:
    """Return the batch of columns of storage values; no column at all: of no rows."""
    filled = columns or [()] * len(names)
    arrays = [from_storage_values(each, kind) for each, kind in zip(filled, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def to_user(value: object, kind: pa.DataType) -> object:
    """Return the user's Python value of a storage value."""
    if value is None or _is_plain(kind):
        return value
    if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit == "us":
        return _EPOCH + dt.timedelta(microseconds=value)  # type: ignore[arg-type]
    return from_storage_values([value], kind)[0].as_py()


def value_getter(column: pa.Array) -> Callable[[int], object]:
    """Return the fastest function from an offset to the Python value: numpy's, if it is exact.

    `column[i].as_py()` costs 0.6 us for a number and 2.5 us for a timestamp, `ndarray.item` 0.06.
    """
    kind = column.type
    if column.null_count or not len(column):
        return lambda offset: column[offset].as_py()
    if pa.types.is_integer(kind) or pa.types.is_float64(kind):
        return column.to_numpy().item
    if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit == "us":
        micros = column.view(pa.int64()).to_numpy().item
        return lambda offset: _EPOCH + dt.timedelta(microseconds=micros(offset))
    return lambda offset: column[offset].as_py()


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
        raise SchemaMismatchError(f"a key must be a tuple of {list(names)}; got {_short(value)}")
    converted = []
    for part, name, kind in zip(parts, names, types, strict=True):
        try:
            if part is None:
                raise UnfitError
            converted.append(converter(kind)(part))
        except UnfitError:
            raise SchemaMismatchError(
                f"key column {name!r} is {kind}, not {_short(part)}"
            ) from None
    return converted[0] if len(converted) == 1 else tuple(converted)


class RowCodec:
    """Rows of one schema: from dicts, to dicts, to Arrow. Immutable."""

    def __init__(self, schema: Schema) -> None:
        self.arrow: pa.Schema = to_arrow(schema)
        self.names: tuple[str, ...] = tuple(c.name for c in schema.columns)
        self._kinds = tuple(decode_type(c.type) for c in schema.columns)
        self._columns = tuple(
            (column.name, converter(kind), not column.nullable)
            for column, kind in zip(schema.columns, self._kinds, strict=True)
        )
        self._plain = tuple(map(_is_plain, self._kinds))
        self.is_packable: bool = not any(_is_unpackable(kind) for kind in self._kinds)
        self.has_nanosecond_times: bool = any(_has_nanosecond_times(kind) for kind in self._kinds)

    def from_user(self, row: Mapping[str, object]) -> Row:
        """Return the storage row of a user's dict; missing nullable columns are null.

        Raises:
            SchemaMismatchError: A column is unknown or has the wrong type, or a null is not
                allowed.
        """
        values: list[object] = []
        found = 0
        for name, convert, required in self._columns:
            value = row.get(name, _MISSING)
            if value is _MISSING or value is None:
                if required:
                    raise SchemaMismatchError(f"column {name!r} may not be null or missing")
                found += value is None
                values.append(None)
                continue
            found += 1
            try:
                values.append(convert(value))
            except UnfitError:
                raise self._unfit(name, value) from None
        if found != len(row):
            self._refuse_unknown(row)
        return tuple(values)

    def check(self, values: Mapping[str, object]) -> None:
        """Check values of some columns.

        Raises:
            SchemaMismatchError: As `from_user`.
        """
        if any(name not in self.names for name in values):
            self._refuse_unknown(values)
        for name, value in values.items():
            _, convert, required = self._columns[self.names.index(name)]
            if value is None and required:
                raise SchemaMismatchError(f"column {name!r} may not be null or missing")
            try:
                if value is not None:
                    convert(value)
            except UnfitError:
                raise self._unfit(name, value) from None

    def _unfit(self, name: str, value: object) -> SchemaMismatchError:
        return SchemaMismatchError(
            f"column {name!r} is {self.arrow.field(name).type}, not {_short(value)}"
        )

    def _refuse_unknown(self, row: Mapping[str, object]) -> None:
        unknown = [name for name in row if name not in self.names]
        raise SchemaMismatchError(no_such("column", unknown, self.names))

    def to_user(self, row: Row) -> dict[str, object]:
        """Return a row as the user's dict."""
        columns = zip(self.names, row, self._plain, self._kinds, strict=True)
        return {
            name: value if plain else to_user(value, kind) for name, value, plain, kind in columns
        }

    def to_batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Return the rows as Arrow. Nulls are allowed: deletes have only their key."""
        return batch_of(list(zip(*rows, strict=True)), self.names, self._kinds)

    def patched(self, rows: pa.Table, values: Mapping[str, object]) -> pa.Table:
        """Return `rows` with these checked values in each row, and all other values unchanged."""
        for name, value in values.items():
            place = self.names.index(name)
            stored = None if value is None else self._columns[place][1](value)
            column = from_storage_values([stored] * rows.num_rows, self._kinds[place])
            rows = rows.set_column(place, self.arrow.field(place), pa.chunked_array([column]))
        return rows

    def rows_of(self, batch: pa.RecordBatch) -> list[Row]:
        """Return the rows of a batch of this schema; finds columns by name."""
        return list(zip(*(storage_values(batch.column(name)) for name in self.names), strict=True))


def _is_unpackable(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return kind.precision > _PACKED_DECIMAL_DIGITS_MAX
    return pa.types.is_nested(kind) or extensions.is_tensor(kind)


def _has_nanosecond_times(kind: Any) -> bool:
    """Say whether a type holds times of day that Python's `time` cuts at the microsecond."""
    if pa.types.is_nested(kind):
        return any(_has_nanosecond_times(kind.field(n).type) for n in range(kind.num_fields))
    return pa.types.is_time64(kind) and kind.unit == "ns"


def _short(value: object) -> str:
    try:
        text = " ".join(repr(value).split())  # one line, also of a table
    except ValueError:  # an integer of over 4,300 digits
        text = ""
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}".rstrip()
