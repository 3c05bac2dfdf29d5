"""Key beginning: between which bytes the composite keys lie of all rows that a filter keeps.

    of the key (a, b)
    a = 'x'                    all keys that begin with x
    a = 'x' AND b >= 5         those from (x, 5) to the last one that begins with x
    a > 'x' AND b = 5          those behind the last one that begins with x
    b = 5                      not known

Only bytes can say that: a range of keys has whole keys as its ends. The filter is asked of each
row.
"""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from siltstone.engine.filter.key_span import ALL_KEYS, KeySpan, span_of
from siltstone.engine.filter.pushed import Push
from siltstone.formats.keys import KeyCodec

BytesBetween: TypeAlias = tuple[bytes, bytes | None]
"""Keys as bytes, from the first one to below the other (None: open)."""
ALL_BYTES: BytesBetween = b"", None


def beginning_of(push: Push | None, codec: KeyCodec) -> BytesBetween:
    """Return between what the keys lie where `push` is true; `ALL_BYTES`: anywhere."""
    equal: list[object] = []
    for name in codec.names:
        span = span_of(push, name) or ALL_KEYS
        if span.is_empty:
            return b"", b""
        is_one = span.has_low and span.has_high and span.low is not None and span.low == span.high
        if not is_one:
            return _between(codec, equal, span)
        equal.append(span.low)
    return _between(codec, equal, ALL_KEYS)


def _between(codec: KeyCodec, equal: list[object], span: KeySpan) -> BytesBetween:
    """Return the keys that begin with some values, the next one of which is in a span."""
    try:
        first, end = codec.ordered_beginning(equal), _behind(codec, equal)
        if span.low is not None:
            low = [*equal, span.low]
            above = codec.ordered_beginning(low) if span.has_low else _behind(codec, low)
            first = first if above is None else above
        if span.high is not None:
            high = [*equal, span.high]
            end = _behind(codec, high) if span.has_high else codec.ordered_beginning(high)
    except (ArithmeticError, ValueError, pa.ArrowException):
        # One is beyond those of the column: the equal ones alone say enough.
        return ALL_BYTES if span is ALL_KEYS else _between(codec, equal, ALL_KEYS)
    return first, end


def _behind(codec: KeyCodec, values: list[object]) -> bytes | None:
    """Return what is above all keys that begin with some values, and at or below all others above.

    None: nothing is.
    """
    begun = codec.ordered_beginning(values)
    if len(values) == len(codec.names):
        return begun + b"\x00"
    cut = begun.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
