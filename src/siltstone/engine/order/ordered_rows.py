"""Ordered rows: the rows of a key range in the order of their keys, a few at a time.

    places     where they are, by key (`row_places`); those that an offset skips are not read
    rows       as many at once as are likely needed (`placed_rows`)
    filter     what it says about more than the key is asked of each row

A filter that keeps few rows would have all of them read by their places, which is slow for many. So
after `_LOOKED_AT_MIN` rows or more the rest is a scan that is sorted (`sorted_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.filter.filters import Filter
from siltstone.engine.filter.key_span import ALL_KEYS, KeySpan, span_of
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.chunk import SortedKeys
from siltstone.engine.levels.overlay import Overlay
from siltstone.engine.order.key_beginning import ALL_BYTES, BytesBetween, beginning_of
from siltstone.engine.order.key_range import KeyRange
from siltstone.engine.order.level_order import sorted_levels
from siltstone.engine.order.placed_rows import PlacedRows
from siltstone.engine.order.row_places import Places, places_of
from siltstone.engine.order.sorted_rows import sorted_rows
from siltstone.formats.keys import Key

_LOOKED_UP_MAX = 1_024
_LOOKED_AT_MIN, _LOOKED_AT_PER_ROW = 1_024, 16

Scan: TypeAlias = Callable[[Sequence[str], Filter | None], Iterator[pa.RecordBatch]]
"""Returns the rows that a filter keeps, with some columns, in no order."""


LookUp: TypeAlias = Callable[[Sequence[Key], list[str]], Iterator[pa.RecordBatch]]
"""Returns the rows of some keys, and maybe others, with some columns, in no order."""


Levels: TypeAlias = Sequence[tuple[int, SortedKeys]]
"""See `level_order.sorted_levels`."""


class Page(msgspec.Struct, frozen=True):
    """Which of the rows in order are wanted: all behind the first `offset`, at most `limit`.

    `likely`: as many are likely taken of those; None: all.
    """

    offset: int = 0
    limit: int | None = None
    likely: int | None = None

    @property
    def end(self) -> int | None:
        """How many rows in order it ends behind."""
        return None if self.limit is None else self.offset + self.limit

    def behind(self, rows: int) -> Page:
        """Return the same page of what follows the first `rows` rows."""
        limit = None if self.end is None else max(0, self.end - max(rows, self.offset))
        return Page(max(0, self.offset - rows), limit, self.likely)

    @property
    def first_rows(self) -> int | None:
        """How many rows in order are likely read, those that are left out among them."""
        return self.likely if self.end is None else self.end


@dataclass(frozen=True, slots=True)
class OrderedRead:
    """The rows of one keyed table at one seq that `wanted` keeps, with the columns `shown`."""

    table_schema: TableSchema
    base: Base | None
    overlay: Callable[[], Overlay]
    scan: Scan
    look_up: LookUp
    shown: Sequence[str]
    wanted: Filter | None

    @property
    def has_order(self) -> bool:
        """Whether keys are found in order; else all rows that match are sorted."""
        return self._levels() is not None

    def _levels(self) -> Levels | None:
        """Return the keys above base in order, of exact codes none; None: keys have no order."""
        codec = self.table_schema.codec
        if self.base is not None and not self.base.has_order:
            return None
        return () if codec.exact else sorted_levels(self.overlay(), codec)

    def batches(self, keys: KeyRange, page: Page) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a page of the range."""
        span = self._span()
        if page.limit == 0 or (span is not None and span.is_empty):
            return
        levels = self._levels()
        if levels is None:
            yield from self.by_sort(keys, page)
            return
        keys = keys if span is None else keys.within(span)
        if span is not None and span.is_all:
            places = _cut(self._places(keys, levels), page)
            likely = page.likely if page.limit is None else page.limit
            yield from (rows for _, rows in self._rows(self.shown, places, likely))
        else:
            yield from self._filtered(keys, page, levels)

    def few(self, at_most: int) -> Iterator[pa.RecordBatch] | None:
        """Return the rows of the keys between which the filter says that they are.

        None if it does not say it, they are more than `at_most`, or keys have no order.
        """
        span = self._span()
        if span is not None and span.is_empty:
            return iter(())
        is_open = span is None or (span.low is None and span.high is None)
        if is_open and self._beginning() == ALL_BYTES:
            return None
        if self.base is not None and not self.base.has_all_keys:
            return None  # an index of keys costs more than a scan
        levels = self._levels()
        return None if levels is None else self._rows_of(span, levels, at_most)

    def _rows_of(
        self, span: KeySpan | None, levels: Levels, at_most: int
    ) -> Iterator[pa.RecordBatch] | None:
        keys, found = KeyRange() if span is None else KeyRange().within(span), 0
        for _, places in self._places(keys, levels):
            found += len(places)
            if found > at_most:
                return None
        is_all = span is not None and span.is_all
        columns = self.shown if is_all else columns_with(self.wanted, self.shown)
        rows = self._rows(columns, self._places(keys, levels), None)
        if is_all:
            return (batch for _, batch in rows)
        return (batch for batch in self._kept(rows) if batch.num_rows)

    def _span(self) -> KeySpan | None:
        """Return what the filter says about the key."""
        if self.wanted is None:
            return ALL_KEYS
        names = self.table_schema.codec.names
        return span_of(self.wanted.push, names[0]) if len(names) == 1 else None

    def _beginning(self) -> BytesBetween:
        """Return what the filter says about the first columns of a composite key."""
        codec = self.table_schema.codec
        if self.wanted is None or len(codec.names) == 1:
            return ALL_BYTES
        return beginning_of(self.wanted.push, codec)

    def _places(self, keys: KeyRange, levels: Levels) -> Iterator[Places]:
        visibility, codec = self.overlay().visibility, self.table_schema.codec
        return places_of(keys, codec, self.base, visibility, levels, self._beginning())

    def _rows(
        self, columns: Sequence[str], places: Iterator[Places], likely: int | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        return self._placed(columns).batches(places, likely)

    def _placed(self, columns: Sequence[str]) -> PlacedRows:
        return PlacedRows(self.table_schema, self.base, self.overlay(), columns)

    def _kept(self, found: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Yield those rows that the filter keeps, maybe none of a batch."""
        assert self.wanted is not None
        for _, rows in found:
            yield self.wanted.keep(rows).select(list(self.shown))

    def by_sort(self, keys: KeyRange, page: Page) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a page by a sort of all rows that match."""
        names = self.table_schema.codec.names
        is_short = page.end is not None and page.end <= _LOOKED_UP_MAX
        if is_short and not set(self.shown) <= set(names):
            yield from self._looked_up(self._lowest(names, keys, page))
        else:
            yield from self._lowest(self.shown, keys, page)

    def _lowest(
        self, columns: Sequence[str], keys: KeyRange, page: Page
    ) -> Iterator[pa.RecordBatch]:
        rows = sorted_rows(self.scan, self.table_schema, columns, self.wanted, keys, page.end)
        return paged(rows, page)

    def _looked_up(self, found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some keys in their order: only those are read with all columns."""
        codec = self.table_schema.codec
        keys = [key for batch in found for key in codec.keys(batch)]
        if not keys:
            return
        read = [*self.shown, *(name for name in codec.names if name not in self.shown)]
        rows = pa.Table.from_batches(self.look_up(keys, read), self.table_schema.fields(read))
        places = {key: place for place, key in enumerate(codec.keys(rows))}
        at = pa.array([places[key] for key in keys if key in places], pa.int64())
        yield from rows.select(list(self.shown)).take(at).combine_chunks().to_batches()

    def _filtered(self, keys: KeyRange, page: Page, levels: Levels) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a filter that says more; after many that it drops, by a sort."""
        left, looked_at = page, 0
        most = looked_at_max(page)
        columns = columns_with(self.wanted, self.shown)
        found = self._rows(columns, self._places(keys, levels), page.first_rows)
        for last, rows in found:
            (kept,) = self._kept([(last, rows)])
            yield from paged(iter([kept]), left)
            left, looked_at = left.behind(kept.num_rows), looked_at + rows.num_rows
            if left.limit == 0:
                return
            if looked_at >= most:
                codec = self.table_schema.codec
                row = self._placed(codec.names).at(np.array([last]))
                yield from self.by_sort(keys.after(codec.keys(row)[0]), left)
                return


def looked_at_max(page: Page) -> int:
    """Return how many rows are looked up for a page: to sort those behind them costs less."""
    return max(_LOOKED_AT_MIN, _LOOKED_AT_PER_ROW * (page.end or 0))


def columns_with(wanted: Filter | None, shown: Sequence[str]) -> list[str]:
    """Return some columns, and behind them what a filter reads more."""
    return [*shown, *(n for n in sorted(wanted.columns) if n not in shown)] if wanted else [*shown]


def _cut(blocks: Iterator[Places], page: Page) -> Iterator[Places]:
    """Yield the places of a page."""
    for codes, places in blocks:
        cut = slice(page.offset, page.end)
        page = page.behind(len(codes))
        if len(codes[cut]):
            yield codes[cut], places[cut]
        if page.limit == 0:
            return


def paged(batches: Iterator[pa.RecordBatch], page: Page) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a page of some in order."""
    for batch in batches:
        kept = batch.slice(min(page.offset, batch.num_rows), page.limit)
        page = page.behind(batch.num_rows)
        if kept.num_rows:
            yield kept
        if page.limit == 0:
            return
