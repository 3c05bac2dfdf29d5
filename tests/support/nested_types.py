"""Nested types: random columns of nested types, as a table holds them and as callers give them.

plain    the type of the column, and its values
given    the same values: dictionaries and views at any depth, in parts between other rows
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

Refuses = Callable[[Any], bool]
_MOMENTS = [0, -1, 1, 1_577_836_800, -2_208_988_800, 999_999_999]
_SPANS = [0, -1, 1, 86_400, 123_456_789]
_FLOATS = [0.0, -0.0, 1.5, -2.0, math.nan, math.inf, -math.inf]
_TEXTS = ["", "a", "ä€😀", "longer than what a view holds inline", "null", "NaN"]
_BYTES = [b"", b"\0\xff", b"longer than what a view holds inline"]


def _whole(bits: int, *, is_signed: bool) -> list[Any]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return [0, 1, low, high]


LEAVES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    **{
        make(): _whole(make().bit_width, is_signed=pa.types.is_signed_integer(make()))
        for make in (pa.int8, pa.int16, pa.int32, pa.int64)
    },
    **{
        make(): _whole(make().bit_width, is_signed=False)
        for make in (pa.uint8, pa.uint16, pa.uint32, pa.uint64)
    },
    **{make(): _FLOATS for make in (pa.float16, pa.float32, pa.float64)},
    **{make(): _TEXTS for make in (pa.string, pa.large_string)},
    **{make(): _BYTES for make in (pa.binary, pa.large_binary)},
    pa.binary(3): [b"abc", b"\0\0\xff"],
    pa.date32(): [dt.date(1, 1, 1), dt.date(2026, 1, 2)],
    pa.date64(): [dt.date(1969, 12, 31), dt.date(2026, 1, 2)],
    pa.time32("s"): [0, 86_399],
    pa.time32("ms"): [0, 86_399_999],
    pa.time64("us"): [0, 86_399_999_999],
    **{pa.timestamp(cast("Any", unit)): _MOMENTS for unit in ("s", "ms", "us", "ns")},
    **{pa.timestamp(cast("Any", unit), "UTC"): _MOMENTS for unit in ("s", "us", "ns")},
    pa.timestamp("us", "America/New_York"): _MOMENTS,
    **{pa.duration(cast("Any", unit)): _SPANS for unit in ("s", "ms", "us", "ns")},
    pa.decimal128(9, 2): [Decimal("1.50"), Decimal("-9999999.99"), Decimal("0.00")],
    pa.decimal128(38, 0): [Decimal(10) ** 37, Decimal(-1)],
    pa.decimal256(60, 1): [Decimal("0.1"), Decimal(-7).quantize(Decimal("0.1"))],
}
"""Types without others inside, each with some of its values; of times their numbers."""


@dataclass(frozen=True)
class Column:
    """The same values twice: in the type of a table's column, and as a caller may give them."""

    plain: Any
    given: Any


class Nested:
    """Makes columns: the same ones for the same seed. `refuses` leaves out types of a form."""

    def __init__(
        self, seed: int, refuses: Refuses = lambda _: False, *, is_disguised: bool = True
    ) -> None:
        self._random = random.Random(seed)
        self._leaves = [kind for kind in LEAVES if not refuses(kind)]
        self._refuses, self._is_disguised = refuses, is_disguised

    def tables(self, columns: int, rows: int) -> tuple[pa.Table, pa.Table]:
        """Return a table with an id and nested columns: plain, and as given, in two chunks."""
        made = [self.column(rows + 3, depth=1 + place % 3) for place in range(columns)]
        names = ["id", *(f"c{place}" for place in range(columns))]
        ids = pa.array(range(-2, rows + 1), pa.int64())
        plain = pa.table([ids, *(each.plain for each in made)], names)
        given = pa.table([ids, *(each.given for each in made)], names)
        parts = [given.slice(2, rows // 2), given.slice(2 + rows // 2, rows - rows // 2)]
        return plain.slice(2, rows), pa.concat_tables(parts)

    def column(self, length: int, depth: int) -> Column:
        """Return a column that is nested `depth` times."""
        makers = [self._list, self._vector, self._struct, self._map, self._struct, self._list]
        makers = [each for each in makers if not self._refuses(_EXAMPLES[each.__name__])]
        if not depth or not makers:
            return self._leaf(length)
        made = self._random.choice(makers)(length, depth - 1)
        return self._disguised(made) if self._random.random() < 0.2 else made

    def _leaf(self, length: int) -> Column:
        kind = self._random.choice(self._leaves)
        values = LEAVES[kind]
        if type(values[0]) is int and not pa.types.is_integer(kind):
            found = pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64())
            pool: Any = found.view(kind)
        else:
            pool = pa.array(values, kind)
        made = Column(pool, pool)
        if self._is_disguised and pa.types.is_string(kind):
            made = Column(pool, self._random.choice([pool, pool.cast(pa.string_view())]))
        if self._is_disguised and pa.types.is_binary(kind):
            made = Column(pool, self._random.choice([pool, pool.cast(pa.binary_view())]))
        return self._taken(made, length)

    def _taken(self, pool: Column, length: int) -> Column:
        """Return rows of a pool, with nulls; as a dictionary over it, or its values."""
        size = len(pool.plain)
        places = [self._random.choice([None, *range(size)]) for _ in range(length)]
        indices: Any = pa.array(places, self._random.choice([pa.int8(), pa.int32(), pa.uint64()]))
        plain = pool.plain.take(indices)
        # Arrow joins chunks of dictionaries of half floats wrongly.
        may = self._is_disguised and not pa.types.is_float16(pool.plain.type)
        if may and self._random.random() < 0.5:
            return Column(plain, pa.DictionaryArray.from_arrays(indices, pool.given))
        kind = pool.given.type
        is_view = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
        return Column(plain, plain.cast(kind) if is_view else plain)

    def _disguised(self, pool: Column) -> Column:
        """Return nested values as a dictionary over them."""
        if not self._is_disguised or "halffloat" in str(pool.plain.type):
            return pool
        size = len(pool.plain)
        places = [self._random.choice([None, *range(size)]) for _ in range(size)]
        indices = pa.array(places, pa.int32())
        plain = pool.plain.take(indices)
        return Column(plain, pa.DictionaryArray.from_arrays(indices, pool.given))

    def _offsets(self, length: int) -> tuple[list[int], Any]:
        offsets = [0]
        for _ in range(length):
            offsets.append(offsets[-1] + self._random.choice([0, 1, 2, 3]))
        return offsets, self._mask(length)

    def _mask(self, length: int) -> Any:
        return pa.array([self._random.random() < 0.2 for _ in range(length)])

    def _list(self, length: int, depth: int) -> Column:
        offsets, mask = self._offsets(length)
        inner = self.column(offsets[-1], depth)
        kinds = [pa.ListArray, pa.LargeListArray]
        kinds = kinds[:1] if self._refuses(pa.large_list(pa.int8())) else kinds
        kind: Any = self._random.choice(kinds)
        starts: Any = pa.array(offsets, pa.int32() if kind is pa.ListArray else pa.int64())
        return Column(
            *(kind.from_arrays(starts, each, mask=mask) for each in (inner.plain, inner.given))
        )

    def _vector(self, length: int, depth: int) -> Column:
        del depth
        inner = self._leaf(length * 2)
        while not pa.types.is_primitive(inner.plain.type):
            inner = self._leaf(length * 2)
        mask = self._mask(length)
        return Column(
            *(
                pa.FixedSizeListArray.from_arrays(each, 2, mask=mask)
                for each in (inner.plain, inner.given)
            )
        )

    def _struct(self, length: int, depth: int) -> Column:
        parts, mask = [self.column(length, depth), self._leaf(length)], self._mask(length)
        return Column(
            *(
                pa.StructArray.from_arrays(cast("Any", each), ["x", "y z"], mask=mask)
                for each in ([p.plain for p in parts], [p.given for p in parts])
            )
        )

    def _map(self, length: int, depth: int) -> Column:
        offsets, mask = self._offsets(length)
        counts = [end - start for start, end in itertools.pairwise(offsets)]
        keys: Any = pa.array([f"k{n}" for count in counts for n in range(count)])
        given = keys.dictionary_encode() if self._is_disguised else keys
        items = self.column(offsets[-1], depth)
        made: Any = pa.array(offsets, pa.int32())
        return Column(
            pa.MapArray.from_arrays(made, keys, items.plain, mask=mask),
            pa.MapArray.from_arrays(made, given, items.given, mask=mask),
        )


_EXAMPLES: dict[str, pa.DataType] = {
    "_list": pa.list_(pa.int8()),
    "_vector": pa.list_(pa.int8(), 2),
    "_struct": pa.struct([("x", pa.int8())]),
    "_map": pa.map_(pa.string(), pa.int8()),
}
