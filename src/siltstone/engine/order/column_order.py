"""Column order: the rows of a table by a column that has an index, equal values by their keys.

    values     `value_windows` say where the rows are; a few hundred are read at a time and sorted
               by value and key. The rows of a value that very many have are read by key
    a sort     where no index has the values in order, and after a filter dropped most of many rows:
               a scan of all that match, as of a table whose key is the column and the key
    nulls      last in both directions, by key

The bounds of what is read come from what the filter says about the column (`key_span`). It is asked
of each row, so they may be too wide.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.filter.filters import both, filter_of
from siltstone.engine.filter.key_span import ALL_KEYS, KeySpan, span_of
from siltstone.engine.filter.pushed import is_pushable
from siltstone.engine.levels.chunk import batch_of
from siltstone.engine.order.key_range import KeyRange
from siltstone.engine.order.ordered_rows import (
    OrderedRead,
    Page,
    columns_with,
    looked_at_max,
    paged,
)
from siltstone.engine.order.placed_rows import PlacedRows
from siltstone.engine.order.sorted_rows import key_order
from siltstone.engine.order.value_windows import ROWS_MAX, ROWS_MIN, ValueWindows, Window
from siltstone.formats.keys import Key, KeyCodec
from siltstone.formats.rows import from_storage_values
from siltstone.process import deadline

_ROWS_MIN = 64
_NOT_KNOWN = KeySpan(None, None, is_all=False)


def has_order(kind: pa.DataType) -> bool:
    """Say whether rows may be read by a column of a type: floats have NaN, lists no order."""
    return is_pushable(kind)


class ByColumn(NamedTuple):
    """The order of a column, equal values by their keys; nulls come last."""

    column: str
    descending: bool


class ColumnOrder(msgspec.Struct, frozen=True):
    """The rows of `read`, with its filter, in an order; see the module."""

    read: OrderedRead
    order: ByColumn

    def batches(self, page: Page) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a page."""
        return iter(()) if page.limit == 0 else paged(self._rows(page), page)

    def _rows(self, page: Page) -> Iterator[pa.RecordBatch]:
        """Yield all rows; those that the page skips may come as nulls."""
        wanted = self.read.wanted
        span = ALL_KEYS if wanted is None else span_of(wanted.push, self.order.column)
        if span is not None and span.is_empty:
            return
        read = self.read
        windows = ValueWindows.of(read.table_schema, read.base, read.overlay(), self.order.column)
        if windows is None:
            yield from self._by_sort(KeyRange(descending=self.order.descending), page)
        else:
            yield from self._by_windows(windows, span or _NOT_KNOWN, page)
        may_be_null = wanted is None or span is None
        if may_be_null and (windows is None or windows.has_nulls):
            yield from self._by_key(pc.field(self.order.column).is_null(), page)

    def _by_windows(
        self, windows: ValueWindows, span: KeySpan, page: Page
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that have a value in a span, of which the filter keeps some."""
        wanted, shown = self.read.wanted, list(self.read.shown)
        seen, dropped, dropped_max = 0, 0, looked_at_max(page)
        ends = self._scalar(span.low), self._scalar(span.high)
        is_whole = span.is_all and span.has_low and span.has_high
        count = max(_ROWS_MIN, min(page.first_rows or ROWS_MIN, ROWS_MAX))
        for window in windows.between(*ends, descending=self.order.descending, rows=count):
            if not isinstance(window, Window):
                is_of_it: Any = pc.field(self.order.column) == window
                for batch in self._by_key(is_of_it, page.behind(seen)):
                    seen += batch.num_rows
                    yield batch
                continue
            if is_whole and seen + len(window.places) <= page.offset:
                seen += len(window.places)
                yield _skipped(self.read.table_schema.fields(shown), len(window.places))
                continue
            for rows in self._sorted(window, count):
                kept = rows if wanted is None else wanted.keep(rows)
                seen, dropped = seen + kept.num_rows, dropped + rows.num_rows - kept.num_rows
                yield kept.select(shown)
                if dropped >= dropped_max:
                    keys = KeyRange(descending=self.order.descending).after(self._last_key(rows))
                    yield from self._by_sort(keys, page.behind(seen))
                    return

    def _sorted(self, window: Window, count: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a window by value and key, about so many at a time."""
        read, places = self.read, window.places
        columns = columns_with(read.wanted, list(dict.fromkeys([*read.shown, *self._key.names])))
        placed = PlacedRows(read.table_schema, read.base, read.overlay(), columns)
        groups = _ends_of_groups(window.values)
        first = group = 0
        while first < len(places):
            deadline.check()
            at = int(groups.searchsorted(first + count))
            end = int(groups[min(at, len(groups) - 1)])
            rows = placed.at(places[first:end])
            has_ties = min(at, len(groups) - 1) - group + 1 < end - first
            yield self._by_value_and_key(rows) if has_ties else rows
            first, group = end, min(at, len(groups) - 1) + 1

    def _by_value_and_key(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        table = pa.Table.from_batches([rows])
        return rows.take(key_order(table, self._key, descending=self.order.descending))

    def _by_key(self, only: Any, page: Page) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one value, or the nulls, by key, as many as end the page."""
        read = self.read
        wanted = both(read.wanted, filter_of(only, read.table_schema.arrow))
        keys = KeyRange(descending=self.order.descending)
        return replace(read, wanted=wanted).batches(keys, Page(limit=page.end))

    def _by_sort(self, keys: KeyRange, page: Page) -> Iterator[pa.RecordBatch]:
        """Yield the rows that have a value by a sort of all, as many as end the page."""
        read, names = self.read, self.read.table_schema.codec.names
        is_there: Any = pc.field(self.order.column).is_valid()
        has_value = filter_of(is_there, read.table_schema.arrow)
        key_of = itemgetter(*(self._key.names.index(name) for name in names))
        sorting = OrderedRead(
            self._by_both,
            None,
            read.overlay,
            read.scan,
            lambda found, columns: read.look_up([*map(key_of, cast("Any", found))], columns),
            read.shown,
            both(read.wanted, has_value),
        )
        return sorting.by_sort(keys, Page(limit=page.end))

    @property
    def _by_both(self) -> TableSchema:
        """The table as if its key were the column and the key."""
        schema = self.read.table_schema.schema
        column = self.read.table_schema.ids[self.order.column]
        key = (column, *(each for each in schema.key if each != column))
        return table_schema_of(msgspec.structs.replace(schema, key=key))

    @property
    def _key(self) -> KeyCodec:
        return self._by_both.codec

    def _last_key(self, rows: pa.RecordBatch) -> Key:
        return self._key.keys(rows.slice(rows.num_rows - 1))[0]

    def _scalar(self, end: Any) -> pa.Scalar[Any] | None:
        """Return an end of a span as a value of the column; None: it has none such."""
        kind = self.read.table_schema.arrow.field(self.order.column).type
        with suppress(pa.ArrowException, OverflowError, TypeError):
            return None if end is None else from_storage_values([end], kind)[0]
        return None


def _ends_of_groups(values: pa.Array) -> np.ndarray:
    """Return where the equal values of a sorted array end, ascending."""
    if len(values) < 2:
        return np.array([len(values)])
    differs: Any = pc.not_equal(values.slice(0, len(values) - 1), values.slice(1))
    return np.append(np.flatnonzero(differs.to_numpy(zero_copy_only=False)) + 1, len(values))


def _skipped(fields: pa.Schema, rows: int) -> pa.RecordBatch:
    return batch_of([pa.nulls(rows, field.type) for field in fields], fields, rows)
