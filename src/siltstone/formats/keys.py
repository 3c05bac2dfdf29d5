"""Keys: the identity of a row of a keyed table, as a Python value and as a 64-bit code.

A key is the storage value of the key column (see `formats.rows`), or a tuple of them when the key
is composite. Its *code* is an int64: the value itself for integers, dates, timestamps and bools
(`exact`), a hash for everything else: xxh3 keyed by the secret of the table, so that who cannot
read the store cannot construct collisions, and files and all processes have the same codes. A
hashed code is a filter: after finding equal codes, compare the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import repeat
from operator import itemgetter
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from siltstone.formats import rows as row_values
from siltstone.formats.manifest import Schema
from siltstone.formats.order.key_bytes import ByteKeys, decimal_bytes, key_bytes
from siltstone.formats.schema import column_named, decode_type, key_names
from siltstone.formats.types import extensions

Key = object
Codes = np.ndarray
KeyColumns: TypeAlias = tuple[pa.Array, ...]
"""The key columns of some rows, in the order of the key, as what their types lie in."""
KeysAt: TypeAlias = Callable[[np.ndarray], KeyColumns]
"""Returns the keys at some indices of codes; asked only for hashed codes, for a block at a time."""

_BLOCK_ROWS = 131_072
_PLAIN_KEYS = (int, str, bytes)
_NOTHING = np.zeros(0, np.int64)
_WRAP = 1 << 64
_HALF = 1 << 63


class KeyCodec:
    """Extracts and codes the keys of one schema, from rows and batches. Immutable."""

    __slots__ = (
        "_bytes_of", "_secret", "exact", "from_user", "is_plain", "key_of", "names", "user_types",
    )  # fmt: skip

    def __init__(self, schema: Schema) -> None:
        self.names: tuple[str, ...] = key_names(schema)
        self.user_types = tuple(decode_type(column_named(schema, n).type) for n in self.names)
        self.exact: bool = len(self.names) == 1 and _is_exact(self.user_types[0])
        self._secret = schema.secret
        self._bytes_of = _parts_bytes if len(self.names) > 1 else _part_bytes
        self.is_plain: bool = all(map(row_values.is_plain, self.user_types))
        """Whether the user's values of the key columns are the key."""
        self.from_user: Callable[[object], Key] = _from_user(self.names, self.user_types)
        """Return the key for a user's value, tuple, or dict of the key columns.

        Raises:
            SchemaMismatchError: It has a wrong type, a wrong number of values, or a null.
        """
        positions = {column.name: index for index, column in enumerate(schema.columns)}
        self.key_of: Callable[[Sequence[object]], Key] = itemgetter(
            *(positions[name] for name in self.names)
        )

    def code(self, key: Key) -> int:
        """Return the code of one key."""
        if self.exact:
            value = int(key)  # type: ignore[call-overload]
        else:
            value = xxhash.xxh3_64_intdigest(self._bytes_of(key), self._secret)
        return value - _WRAP if value >= _HALF else value

    def key_of_code(self, code: int) -> Key:
        """Return the key whose code is `code`; only if codes are `exact`."""
        kind = self.user_types[0]
        if pa.types.is_boolean(kind):
            return bool(code)
        return code + _WRAP if pa.types.is_uint64(kind) and code < 0 else code

    def codes_of(self, keys: Sequence[Key]) -> Codes:
        """Return the codes of many keys."""
        if self.exact:
            return np.fromiter(map(self.code, keys), np.int64, len(keys))
        return _hashed(map(self._bytes_of, keys), self._secret, len(keys))

    def codes(self, batch: pa.RecordBatch | pa.Table) -> Codes:
        """Return the codes of a batch's keys; finds the key columns by name."""
        return self.seeded_codes(batch, self._secret)

    def seeded_codes(self, batch: pa.RecordBatch | pa.Table, seed: int) -> Codes:
        """Return the codes that a table whose secret is `seed` would have."""
        if self.exact:
            return _exact_codes(_column(batch, self.names[0]))
        if len(self.names) > 1:
            return _hashed(map(self._bytes_of, self.keys(batch)), seed, batch.num_rows)
        (column,), (kind,) = self.columns(batch), self.user_types
        return _hashed(_column_bytes(column, kind), seed, len(column))

    def ordered(self, columns: KeyColumns) -> ByteKeys:
        """Return keys in columns as bytes that compare as they do."""
        return key_bytes(columns, _exact_codes)

    def ordered_of(self, batch: pa.RecordBatch | pa.Table) -> ByteKeys:
        """Return the keys of a batch as bytes that compare as they do."""
        return self.ordered(self.columns(batch))

    def ordered_key(self, key: Key) -> bytes:
        """Return one key as bytes that compare as keys do, also the next one above all decimals."""
        if len(self.names) == 1 and isinstance(key, str | bytes):
            return _part_bytes(key)
        if isinstance(key, int) and not self.exact:
            return decimal_bytes(key)
        return cast("bytes", self.ordered(self.columns(self.batch([key])))[0])

    def ordered_beginning(self, values: Sequence[object]) -> bytes:
        """Return as bytes what keys begin with whose first columns have some storage values.

        Raises:
            ArithmeticError, ValueError, pa.ArrowException: A column cannot have its value.
        """
        if not values:
            return b""
        names, kinds = self.names[: len(values)], self.user_types[: len(values)]
        batch = row_values.batch_of([[value] for value in values], names, kinds)
        stored = [_stored(batch.column(n), k) for n, k in zip(names, kinds, strict=True)]
        is_whole = len(names) == len(self.names)
        return cast("bytes", key_bytes(stored, _exact_codes, is_whole=is_whole)[0])

    def keys(self, batch: pa.RecordBatch | pa.Table) -> list[Key]:
        """Return the keys of a batch; finds the key columns by name."""
        columns = [row_values.storage_values(_column(batch, name)) for name in self.names]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def columns(self, batch: pa.RecordBatch | pa.Table) -> KeyColumns:
        """Return the key columns of a batch; finds them by name."""
        named = zip(self.names, self.user_types, strict=True)
        return tuple(_stored(_column(batch, name), kind) for name, kind in named)

    def keys_of(self, keys: KeyColumns) -> list[Key]:
        """Return keys in columns as Python values."""
        typed = zip(keys, self.user_types, strict=True)
        columns = [
            row_values.storage_values(extensions.wrapped(column, kind)) for column, kind in typed
        ]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def batch(self, keys: Sequence[Key]) -> pa.RecordBatch:
        """Return `keys` as a batch of the key columns."""
        columns = [list(keys)] if len(self.names) == 1 else [list(c) for c in zip(*keys)]  # type: ignore[call-overload]  # noqa: B905
        return row_values.batch_of(columns, self.names, self.user_types)

    def to_user(self, key: Key) -> object:
        """Return the key as Python values for users (datetime, Decimal, ...)."""
        if len(self.names) == 1:
            return row_values.to_user(key, self.user_types[0])
        return tuple(row_values.to_user(v, t) for v, t in zip(key, self.user_types, strict=True))  # type: ignore[call-overload]


def _from_user(names: tuple[str, ...], types: tuple[pa.DataType, ...]) -> Callable[[object], Key]:
    """Return what makes keys of users' values: one call for the keys that most tables have."""

    def general(value: object) -> Key:
        return row_values.key_from_user(value, names, types)

    if len(names) > 1:
        return general
    convert, kind = row_values.converter(types[0]), types[0]

    def plain(value: object) -> Key:
        if type(value) in _PLAIN_KEYS:
            try:
                return convert(value)
            except row_values.UnfitError:
                pass  # the general way says what does not fit
        return general(value)

    if not pa.types.is_integer(kind):
        return plain
    low = -(1 << kind.bit_width - 1) if pa.types.is_signed_integer(kind) else 0
    high = low + (1 << kind.bit_width)

    def whole(value: object) -> Key:
        return value if type(value) is int and low <= value < high else plain(value)

    return whole


def _parts_bytes(key: object) -> bytes:
    """Return a key of several columns as bytes that no other key has."""
    parts = [*map(_part_bytes, cast("tuple[object, ...]", key))]
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _part_bytes(value: object) -> bytes:
    """Return a value as bytes that no other value of its column has."""
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, bytes):
        return value
    number = int(cast("int", value))
    return number.to_bytes((number.bit_length() + 8) // 8, "little", signed=True)


def _stored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column of a type as what the type lies in, whichever layout it has."""
    stored = extensions.unwrapped(column)
    if isinstance(stored, pa.DictionaryArray):
        stored = stored.dictionary_decode()
    wanted = extensions.storage_type(kind)
    return stored if stored.type == wanted else stored.cast(wanted)


def same_keys(some: KeyColumns, others: KeyColumns) -> np.ndarray:
    """Say for each of some keys whether it is the other one in its place."""
    pairs_of_columns = zip(some, others, strict=True)
    are_same: Any = reduce(pc.and_, (pc.equal(one, other) for one, other in pairs_of_columns))
    return are_same.to_numpy(zero_copy_only=False)


def in_order(pieces: Sequence[KeyColumns], order: np.ndarray) -> KeyColumns:
    """Return keys that were found in pieces: those of the n-th row come to the place `order[n]`."""
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    columns = (pa.concat_arrays(parts) for parts in zip(*pieces, strict=True))
    return tuple(column.take(pa.array(back)) for column in columns)


def in_blocks(count: int) -> Iterator[np.ndarray]:
    """Yield the indices below `count`, a block at a time: so many keys are in memory twice."""
    for start in range(0, count, _BLOCK_ROWS):
        yield np.arange(start, min(start + _BLOCK_ROWS, count))


def _column_bytes(stored: pa.Array, kind: pa.DataType) -> Iterable[bytes]:
    """Return what `_part_bytes` makes of each value; texts are UTF-8 in Arrow already."""
    if pa.types.is_string(stored.type):
        return cast("list[bytes]", stored.cast(pa.binary()).to_pylist())
    if pa.types.is_binary(stored.type) or pa.types.is_fixed_size_binary(stored.type):
        return cast("list[bytes]", stored.to_pylist())
    return map(_part_bytes, row_values.storage_values(extensions.wrapped(stored, kind)))


def _hashed(values: Iterable[bytes], secret: int, count: int) -> Codes:
    hashes = map(xxhash.xxh3_64_intdigest, values, repeat(secret))
    return np.fromiter(hashes, np.uint64, count).view(np.int64)


def pairs(ordered: Codes, wanted: Codes) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of an index into `wanted` and an index into `ordered` with equal codes.

    Both are ascending, and may repeat codes.
    """
    last = len(ordered) - 1
    if last < 0:
        return _NOTHING, _NOTHING
    at = ordered.searchsorted(wanted)
    needles = np.flatnonzero(ordered[np.minimum(at, last)] == wanted)
    at = at[needles]
    found = [(needles, at)]
    while len(needles):  # hashed codes: another key may have the same one
        more = np.flatnonzero(ordered[np.minimum(at + 1, last)] == wanted[needles])
        more = more[at[more] < last]
        needles, at = needles[more], at[more] + 1
        if len(needles):
            found.append((needles, at))
    if len(found) == 1:
        return found[0]
    return np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])


def newest_rows(codec: KeyCodec, codes: Codes, keys_at: KeysAt) -> Codes:
    """Return the index of the last row of each key, in code order.

    Args:
        codec: The codec of the keys; knows whether equal codes mean equal keys.
        codes: The rows' codes, oldest row first.
        keys_at: Returns the keys of the rows at some indices; called only for equal hashed codes.
    """
    if codec.exact:
        return _newest_by_code(codes)
    order = _stable_argsort(codes)
    ordered = codes[order]
    same = ordered[1:] == ordered[:-1]
    is_last = np.append(~same, True) if len(codes) else np.zeros(0, bool)
    if same.any():
        left = np.flatnonzero(same)
        for at in map(left.__getitem__, in_blocks(len(left))):
            if not same_keys(keys_at(order[at]), keys_at(order[at + 1])).all():
                return _newest_by_key(codec, codec.keys_of(keys_at(np.arange(len(codes)))))
    return order[is_last]


def _newest_by_code(codes: Codes) -> Codes:
    """Take the last of equal codes after the fast sort, which leaves them in any order."""
    if len(codes) < 2 or (codes[1:] > codes[:-1]).all():
        return np.arange(len(codes))
    order = np.argsort(codes)
    ordered = codes[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return order if len(starts) == len(order) else np.maximum.reduceat(order, starts)


def _newest_by_key(codec: KeyCodec, keys: list[Key]) -> Codes:
    """Two keys share a code (one in 2**64 pairs): decide by the keys themselves."""
    newest = {key: index for index, key in enumerate(keys)}
    indices = np.fromiter(newest.values(), np.int64, len(newest))
    return indices[np.argsort(codec.codes_of(list(newest)), kind="stable")]


def _stable_argsort(codes: Codes) -> Codes:
    """Sort equal codes in row order; the fast unstable sort serves when there are none."""
    if len(codes) > 1 and (codes[1:] > codes[:-1]).all():
        return np.arange(len(codes))
    order = np.argsort(codes)
    ordered = codes[order]
    if (ordered[1:] == ordered[:-1]).any():
        return np.argsort(codes, kind="stable")
    return order


def _is_exact(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_boolean(kind)
    )


def _column(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    column = batch.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _exact_codes(column: pa.Array) -> Codes:
    kind: pa.DataType = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    # Not `to_numpy`: it imports pandas, in 0.2 s.
    numbers = np.from_dlpack(cast("Any", column))
    return (
        numbers.view(np.int64) if pa.types.is_uint64(kind) else numbers.astype(np.int64, copy=False)
    )
