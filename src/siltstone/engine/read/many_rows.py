"""Many rows: those of some keys, as `KeyedReader.found` has each; of a cold base read together.

A row of base that is in no memory costs hundreds of microseconds if Lance takes it by itself, and a
tenth of that among a thousand others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from siltstone.formats.keys import Key

if TYPE_CHECKING:
    from siltstone.engine.read.read_union import KeyedReader, Row

_TOGETHER_MAX = 1_024
_ONE_BY_ONE_MAX = 16
"""So many keys are looked up as rows, and more by their codes: rows may be wide."""


def many_rows(reader: KeyedReader, keys: Sequence[Key]) -> pa.Table:
    """Return the rows of the keys that have one, in the order of `keys`."""
    if reader.table_schema.rows.has_nanosecond_times:
        return _as_arrow(reader, keys)
    rows: list[Row] = []
    try:
        for start in range(0, len(keys), _TOGETHER_MAX):
            some = keys[start : start + _TOGETHER_MAX]
            together = _together(reader, some)
            found = (together.get(key) or reader.found(key) for key in some)
            rows += [row for row in found if row is not None]
    except (OverflowError, ValueError):  # beyond Python, or nanoseconds without pandas
        return _as_arrow(reader, keys)
    return pa.Table.from_pylist(rows, schema=reader.table_schema.arrow)


def rows_that_live(reader: KeyedReader, keys: Sequence[Key]) -> int:
    """Return how many of some keys, each given once, have a row."""
    if len(keys) <= _ONE_BY_ONE_MAX:
        try:
            return sum(reader.found(key) is not None for key in keys)
        except (OverflowError, ValueError):  # as in `many_rows`
            pass
    codec, wanted = reader.table_schema.codec, set(keys)
    batches = reader.looked_up(keys, list(codec.names))
    return sum(key in wanted for batch in batches for key in codec.keys(batch))


def _together(reader: KeyedReader, keys: Sequence[Key]) -> Mapping[Key, Row]:
    """Return the rows of base that are in no memory, of the keys that have none above it."""
    base = reader.base
    if base is None or len(keys) == 1 or base.resident_parts:
        return {}
    own, at = reader.own, reader.seq
    above = keys if own is None else [key for key in keys if own.find(key) is None]
    left = [key for key in above if all(s.find(key, at) is None for s in reader.sources)]
    shown = reader.table_schema
    found = base.find_many(left).items()
    return {key: shown.align_row(row, base.table_schema) for key, row in found}


def _as_arrow(reader: KeyedReader, keys: Sequence[Key]) -> pa.Table:
    """See `many_rows`: for rows that would not be the same as Python values."""
    codec, schema = reader.table_schema.codec, reader.table_schema.arrow
    rows = pa.Table.from_batches(reader.looked_up(keys, schema.names), schema)
    places = {key: place for place, key in enumerate(codec.keys(rows))}
    found = [places[key] for key in keys if key in places]
    return rows.take(pa.array(found, pa.int64()))
