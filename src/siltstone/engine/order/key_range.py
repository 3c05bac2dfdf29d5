"""Key range: the keys from one to another, in the order in which rows are read.

Keys are ordered as their storage values: numbers, moments and dates by size, false before true,
texts and bytes by their bytes, UUIDs by their bytes, composite keys by their first column, then by
the second.

    stretches   the same as exact codes (`formats.keys`), which are int64: those of uint64 from 2^63
                on are negative, so they follow the others as a stretch of their own
    bytes       the same as keys in bytes (`formats.order.key_bytes`), where codes are hashes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter.filters import Filter
from siltstone.engine.filter.key_span import KeySpan
from siltstone.errors import RequestError
from siltstone.formats.keys import Key, KeyCodec
from siltstone.formats.rows import from_storage_values
from siltstone.formats.types import extensions

_HALF, _WRAP = 1 << 63, 1 << 64


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `low` to `high`; None is open. Whether the ends are in it, and the direction."""

    low: Key | None = None
    high: Key | None = None
    has_low: bool = True
    has_high: bool = False
    descending: bool = False

    @classmethod
    def of_user(cls, low: object, high: object, codec: KeyCodec, *, descending: bool) -> KeyRange:
        """Return the range [low, high) of a caller's keys.

        Raises:
            SchemaMismatchError: One is not of the key's type.
            RequestError: The low end is above the high end.
        """
        first = None if low is None else codec.from_user(low)
        last = None if high is None else codec.from_user(high)
        if first is not None and last is not None and cast("Any", last) < first:
            raise RequestError(
                f"a range begins at its low end; got {low!r:.80} to {high!r:.80}. For the rows from"
                " high to low keys, ask with descending=True"
            )
        return cls(first, last, descending=descending)

    def within(self, span: KeySpan) -> KeyRange:
        """Return the keys of a span that are in the range."""
        found = self
        if span.low is not None and self._is_below(span):
            found = replace(found, low=span.low, has_low=span.has_low)
        if span.high is not None and self._is_above(span):
            found = replace(found, high=span.high, has_high=span.has_high)
        return found

    def cut(self, sign: str, key: Key) -> KeyRange:
        """Return the keys of the range that are <, <=, =, >= or > than a key."""
        low, high = key if sign[0] in "=>" else None, key if sign[0] in "=<" else None
        is_in = sign.endswith("=")
        return self.within(KeySpan(low, high, is_all=True, has_low=is_in, has_high=is_in))

    def _is_below(self, span: KeySpan) -> bool:
        low: Any = self.low
        return low is None or low < span.low or (low == span.low and not span.has_low)

    def _is_above(self, span: KeySpan) -> bool:
        high: Any = self.high
        return high is None or span.high < high or (high == span.high and not span.has_high)

    def after(self, key: Key) -> KeyRange:
        """Return what is left of the range behind a key, in its direction."""
        if self.descending:
            return replace(self, high=key, has_high=False)
        return replace(self, low=key, has_low=False)

    def upto(self, key: Key) -> KeyRange:
        """Return the range up to a key of it, which is the last one in its direction."""
        if self.descending:
            return replace(self, low=key, has_low=True)
        return replace(self, high=key, has_high=True)

    def stretches(self, codec: KeyCodec) -> list[tuple[int, int]]:
        """Return the codes as [first, last], both in it, in the direction of the range."""
        is_turned = pa.types.is_uint64(codec.user_types[0])
        least, most = (0, _WRAP - 1) if is_turned else (-_HALF, _HALF - 1)
        low, high = cast("int | None", self.low), cast("int | None", self.high)
        first = least if low is None else int(low) + (not self.has_low)
        last = most if high is None else int(high) - (not self.has_high)
        found = [(first, last)]
        if is_turned:
            above = max(first, _HALF) - _WRAP, last - _WRAP
            found = [(first, min(last, _HALF - 1)), above]
        found = [(one, other) for one, other in found if one <= other]
        return found[::-1] if self.descending else found

    def bytes_stretch(self, codec: KeyCodec) -> tuple[bytes, bytes | None]:
        """Return the keys as bytes [first, end); an end of None is open."""
        first = b"" if self.low is None else codec.ordered_key(self.low)
        last = None if self.high is None else codec.ordered_key(self.high)
        if self.low is not None and not self.has_low:
            first += b"\x00"
        return first, last + b"\x00" if last is not None and self.has_high else last

    def keep(self, rows: pa.RecordBatch, codec: KeyCodec) -> pa.RecordBatch:
        """Return the rows whose keys are in the range."""
        mask = np.ones(rows.num_rows, bool)
        if self.low is not None:
            mask &= _is_beyond(rows, codec, self.low, is_above=True, is_equal=self.has_low)
        if self.high is not None:
            mask &= _is_beyond(rows, codec, self.high, is_above=False, is_equal=self.has_high)
        return rows if mask.all() else rows.filter(pa.array(mask))

    def holds(self, key: Key) -> bool:
        """Return whether a key is in the range."""
        given = cast("Any", key)
        if self.low is not None and not (self.low < given or (self.has_low and self.low == key)):
            return False
        return self.high is None or given < self.high or (self.has_high and self.high == key)


class RangePredicate(msgspec.Struct, frozen=True):
    """What a serializable transaction remembers of a read by key: the range, and its filter."""

    keys: KeyRange
    codec: KeyCodec
    wanted: Filter | None

    @property
    def is_text(self) -> bool:
        """Whether its filter can be asked of a row of another time: see `Filter.is_text`."""
        return self.wanted is None or self.wanted.is_text

    def matches(self, row: Mapping[str, object]) -> bool:
        """Return whether a read like this would return a row of Python values."""
        key = self.codec.from_user({name: row[name] for name in self.codec.names})
        return self.keys.holds(key) and (self.wanted is None or self.wanted.matches(row))


def _is_beyond(
    rows: pa.RecordBatch, codec: KeyCodec, key: Key, *, is_above: bool, is_equal: bool
) -> np.ndarray:
    """Say of each row whether its key is above a key (or below), or equal to it if that counts."""
    parts = (key,) if len(codec.names) == 1 else cast("tuple[object, ...]", key)
    found, is_same = np.zeros(rows.num_rows, bool), np.ones(rows.num_rows, bool)
    compare = pc.greater if is_above else pc.less
    for name, kind, part in zip(codec.names, codec.user_types, parts, strict=True):
        column = extensions.unwrapped(rows.column(name))
        end = extensions.unwrapped(from_storage_values([part], kind))[0]
        found |= is_same & _bools(compare(column, end))
        is_same &= _bools(pc.equal(column, end))
    return found | is_same if is_equal else found


def _bools(found: Any) -> np.ndarray:
    return found.to_numpy(zero_copy_only=False)
