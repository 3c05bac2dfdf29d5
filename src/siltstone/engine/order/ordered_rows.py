"""Ordered rows: the rows of a key range in the order of their keys, a few at a time.

    places     where they are, by key (`row_places`); those that an offset skips are not read
    rows       of base and of each level together, as many as are likely needed, put in order
    filter     what it says about more than the key is asked of each row

A filter that keeps few rows would have all of them read by their places, which is slow for many. So
after `_LOOKED_AT_MIN` rows or more the rest is a scan that is sorted (`sorted_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema, aligned
from siltstone.engine.filter.filters import Filter
from siltstone.engine.filter.key_span import ALL_KEYS, KeySpan, span_of
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.chunk import batch_of
from siltstone.engine.levels.overlay import Overlay
from siltstone.engine.order.key_range import KeyRange
from siltstone.engine.order.row_places import Places, places_of
from siltstone.engine.order.sorted_rows import sorted_rows
from siltstone.process import deadline

_ROWS_MIN, _ROWS_FIRST, _ROWS_MAX = 64, 256, 65_536
_BATCH_BYTES = 4 << 20
_EVERY_PLACE = 1 << 62
_LOOKED_AT_MIN, _LOOKED_AT_PER_ROW = 4_096, 16

Scan: TypeAlias = Callable[[Sequence[str], Filter | None], Iterator[pa.RecordBatch]]
"""Returns the rows that a filter keeps, with some columns, in no order."""


@dataclass(frozen=True, slots=True)
class Page:
    """Which of the rows in order are wanted: all behind the first `offset`, at most `limit`."""

    offset: int = 0
    limit: int | None = None

    @property
    def end(self) -> int | None:
        """How many rows in order it ends behind."""
        return None if self.limit is None else self.offset + self.limit

    def behind(self, rows: int) -> Page:
        """Return the same page of what follows the first `rows` rows."""
        limit = None if self.end is None else max(0, self.end - max(rows, self.offset))
        return Page(max(0, self.offset - rows), limit)


@dataclass(frozen=True, slots=True)
class OrderedRead:
    """The rows of one keyed table at one seq, to be read by key; `overlay` is asked once.

    `columns` are those to read, among them those of the filter.
    """

    table_schema: TableSchema
    base: Base | None
    overlay: Callable[[], Overlay]
    scan: Scan
    columns: Sequence[str]
    wanted: Filter | None

    @property
    def has_order(self) -> bool:
        """Whether keys are found in order; else all rows that match are sorted."""
        return self.table_schema.codec.exact and (self.base is None or self.base.has_order)

    def batches(self, keys: KeyRange, page: Page) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a page of the range."""
        span = self._span()
        if span is not None:
            keys = keys.within(span)
        if page.limit == 0:
            return
        if not self.has_order:
            yield from self._sorted(keys, page)
        elif span is not None and span.is_all:
            yield from self._read(_cut(self._places(keys), page), page.limit)
        else:
            yield from self._filtered(keys, page)

    def rows_in(self, keys: KeyRange, at_most: int) -> int:
        """Return how many rows are in a range; more than `at_most`: that there are more."""
        found = 0
        for codes, _ in self._places(keys):
            found += len(codes)
            if found > at_most:
                break
        return found

    def _span(self) -> KeySpan | None:
        """Return what the filter says about the key."""
        if self.wanted is None:
            return ALL_KEYS
        codec = self.table_schema.codec
        return span_of(self.wanted.push, codec.names[0]) if codec.exact else None

    def _places(self, keys: KeyRange) -> Iterator[Places]:
        visibility = self.overlay().visibility
        return places_of(keys, self.table_schema.codec, self.base, visibility)

    def _sorted(self, keys: KeyRange, page: Page) -> Iterator[pa.RecordBatch]:
        rows = sorted_rows(self.scan, self.table_schema, self.columns, self.wanted, keys, page.end)
        yield from _paged(rows, page)

    def _filtered(self, keys: KeyRange, page: Page) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a filter that says more; after many that it drops, by a sort."""
        assert self.wanted is not None
        codec, left = self.table_schema.codec, page
        looked_at_max = max(_LOOKED_AT_MIN, _LOOKED_AT_PER_ROW * (page.end or 0))
        last, looked_at = 0, 0
        for places, rows in self._with_places(self._places(keys), page.end):
            kept = self.wanted.keep(rows)
            yield from _paged(iter([kept]), left)
            left = left.behind(kept.num_rows)
            last, looked_at = int(places[0][-1]), looked_at + rows.num_rows
            if left.limit == 0:
                return
            if looked_at >= looked_at_max:
                yield from self._sorted(keys.after(codec.key_of_code(last)), left)
                return

    def _read(self, places: Iterator[Places], likely: int | None) -> Iterator[pa.RecordBatch]:
        for _, rows in self._with_places(places, likely):
            yield rows

    def _with_places(
        self, blocks: Iterator[Places], likely: int | None
    ) -> Iterator[tuple[Places, pa.RecordBatch]]:
        """Yield places and their rows; at first about as many as are `likely` taken."""
        count = _ROWS_FIRST if likely is None else max(_ROWS_MIN, min(likely, _ROWS_MAX))
        for codes, places in blocks:
            at = 0
            while at < len(codes):
                deadline.check()
                some = codes[at : at + count], places[at : at + count]
                rows = self._rows_at(some[1])
                yield some, rows
                at += count
                fit = _BATCH_BYTES * rows.num_rows // max(1, rows.nbytes)
                count = max(1, min(4 * count, _ROWS_MAX, fit))

    def _rows_at(self, places: np.ndarray) -> pa.RecordBatch:
        """Return the rows at some places, in that order."""
        fields = self.table_schema.fields(self.columns)
        if not self.columns:
            return batch_of([], fields, len(places))
        found: list[pa.RecordBatch] = []
        order: list[np.ndarray] = []
        for numbers, batches in self._parts(places):
            found += batches
            order.append(numbers)
        rows = pa.concat_batches(found)  # pyright: ignore[reportAttributeAccessIssue]
        if _is_ascending(order):
            return rows
        return rows.take(pa.array(np.argsort(np.concatenate(order)), pa.int64()))

    def _parts(self, places: np.ndarray) -> Iterator[tuple[np.ndarray, Sequence[pa.RecordBatch]]]:
        """Yield the rows of base, then of each level, and their numbers among `places`."""
        base, in_base = self.base, _sorted(places, 0, _EVERY_PLACE)
        if base is not None and len(in_base):
            yield in_base, self._of_base(base, places[in_base])
        if len(in_base) == len(places):
            return
        above = ~places
        for level in self.overlay().levels:
            numbers = _sorted(above, level.first, level.first + len(level.kept))
            if len(numbers):
                ordinals = above[numbers] - level.first
                columns = list(self.columns)
                yield (
                    numbers,
                    [*level.source.rows_at(level.parts, ordinals, self.table_schema, columns)],
                )

    def _of_base(self, base: Base, positions: np.ndarray) -> list[pa.RecordBatch]:
        table_schema, columns = self.table_schema, self.columns
        stored = table_schema.stored(columns, base.table_schema)
        names, fields = [name for name in stored if name is not None], table_schema.fields(columns)
        if not names:
            arrays: list[pa.Array] = [pa.nulls(len(positions), field.type) for field in fields]
            return [batch_of(arrays, fields, len(positions))]
        taken = base.take(positions, names).combine_chunks().to_batches()
        return [batch_of(aligned(rows, stored, fields), fields, rows.num_rows) for rows in taken]


def _sorted(places: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return the indexes of the places in [first, end), by place."""
    found = np.flatnonzero((places >= first) & (places < end))
    some = places[found]
    return found if (some[1:] > some[:-1]).all() else found[np.argsort(some)]


def _is_ascending(order: Sequence[np.ndarray]) -> bool:
    return len(order) == 1 and bool((order[0][1:] > order[0][:-1]).all())


def _cut(blocks: Iterator[Places], page: Page) -> Iterator[Places]:
    """Yield the places of a page."""
    for codes, places in blocks:
        cut = slice(page.offset, page.end)
        page = page.behind(len(codes))
        if len(codes[cut]):
            yield codes[cut], places[cut]
        if page.limit == 0:
            return


def _paged(batches: Iterator[pa.RecordBatch], page: Page) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a page."""
    for batch in batches:
        kept = batch.slice(min(page.offset, batch.num_rows), page.limit)
        page = page.behind(batch.num_rows)
        if kept.num_rows:
            yield kept
        if page.limit == 0:
            return
