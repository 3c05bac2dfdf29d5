"""Value windows: the rows of a table by the values of a column, some hundreds at a time.

    runs        what an index of base has in order (`PinnedSearch.values_in_order`), of which the
                visible rows count
    the rest    rows of base that the index does not cover, and those of the levels above: their
                values are read once and sorted, at most `SORTED_MAX` of them

A window has all rows whose values lie in it, in the order of the values; equal values are in no
order. Of a value that so many rows have that a window would be too large, only the value is told.
Nulls are in no window. Places: see `row_places`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.catalog.table_schema import TableSchema
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.overlay import Overlay
from siltstone.formats.bits import Bits
from siltstone.storage.tables.tables import OrderedValues, ValueRun

SORTED_MAX = 1 << 19
ROWS_MIN, ROWS_MAX = 512, 4_096
_NOWHERE = OrderedValues((), ())
_GONE = -(1 << 63)
"""The place of a row that is not visible: of no row."""


class Window(NamedTuple):
    """Values, in order, and the places of their rows."""

    values: pa.Array
    places: np.ndarray


class SortedRows(NamedTuple):
    """Values in memory, ascending, and the places of their rows: a `ValueRun`."""

    values: pa.Array
    places: np.ndarray
    nulls: int

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.places)

    def read(self, first: int, end: int) -> tuple[pa.Array, np.ndarray]:
        """See `tables.ValueRun.read`."""
        return self.values.slice(first, end - first), self.places[first:end]

    def find(self, value: pa.Scalar[Any], *, is_after: bool) -> int:
        """See `tables.ValueRun.find`."""
        return _count(self.values, "<=" if is_after else "<", value)


@dataclass(frozen=True, slots=True)
class _Cursor:
    """What is left of a run; `visible` says which positions of base count, None: all places."""

    run: ValueRun
    visible: Bits | None
    first: int
    end: int
    descending: bool = False

    def block(self, rows: int) -> _Block:
        """Read the next entries."""
        first, end = self.first, min(self.end, self.first + rows)
        if self.descending:
            first, end = max(self.first, self.end - rows), self.end
        values, places = self.run.read(first, end)
        if self.visible is not None:
            is_seen = (places >= 0) & self.visible.has(np.maximum(places, 0))
            places = np.where(is_seen, places, _GONE)
        return _Block(self, values, places)

    def behind(self, value: pa.Scalar[Any]) -> _Cursor:
        """Return what is left behind all entries with a value."""
        found = self.run.find(value, is_after=not self.descending)
        return self.without(self.end - found if self.descending else found - self.first)

    def without(self, entries: int) -> _Cursor:
        """Return what is left behind the next entries."""
        if self.descending:
            return replace(self, end=min(self.end, self.end - entries))
        return replace(self, first=max(self.first, self.first + entries))


class _Block(msgspec.Struct, frozen=True):
    """The next entries of a cursor."""

    cursor: _Cursor
    values: pa.Array
    places: np.ndarray

    @property
    def edge(self) -> pa.Array | None:
        """The last value, as an array of one; None: no entry follows."""
        if len(self.values) == self.cursor.end - self.cursor.first:
            return None
        return self.values.slice(0 if self.cursor.descending else len(self.values) - 1, 1)

    def before(self, edge: pa.Scalar[Any] | None) -> int:
        """Return how many entries come before a value; None: all."""
        if edge is None:
            return len(self.values)
        return _count(self.values, ">" if self.cursor.descending else "<", edge)

    def cut(self, entries: int) -> tuple[pa.Array, np.ndarray]:
        """Return the values and places of the first entries, ascending."""
        first = len(self.values) - entries if self.cursor.descending else 0
        return self.values.slice(first, entries), self.places[first : first + entries]


class ValueWindows(NamedTuple):
    """The rows of one table at one seq by the values of one column; see the module."""

    cursors: Sequence[_Cursor]

    @property
    def has_nulls(self) -> bool:
        """Whether a row may have none of the values; one that is gone counts, too."""
        return any(each.run.nulls for each in self.cursors)

    @classmethod
    def of(
        cls, table_schema: TableSchema, base: Base | None, overlay: Overlay, column: str
    ) -> ValueWindows | None:
        """Return the windows; None: no index has the values in order, or too many are in none."""
        stored, ordered = None, _NOWHERE
        if base is not None:
            if table_schema.is_unlike(column, base.table_schema):
                return None  # no index has the values as they are shown
            (stored,) = table_schema.stored([column], base.table_schema)
            ordered = base.values_in_order(stored)
        if ordered is None:
            return None
        left = sum(end - first for first, end in ordered.uncovered)
        if overlay.rows + left > SORTED_MAX:
            return None
        visible = overlay.visibility.visible
        cursors = [_Cursor(run, visible, 0, run.rows) for run in ordered.runs]
        if left and base is not None and stored is not None:
            rows = _sorted([*_uncovered(base, ordered.uncovered, stored)])
            cursors.append(_Cursor(rows, visible, 0, rows.rows))
        if overlay.rows:
            rows = _sorted([*_above(table_schema, overlay, column)])
            cursors.append(_Cursor(rows, None, 0, rows.rows))
        return cls(cursors)

    def between(
        self,
        low: pa.Scalar[Any] | None,
        high: pa.Scalar[Any] | None,
        *,
        descending: bool,
        rows: int,
    ) -> Iterator[Window | pa.Scalar[Any]]:
        """Yield the rows with values from `low` to `high`, both in it, about `rows` at first.

        Of a value that too many rows have, the value.
        """
        left = [
            replace(
                each,
                first=0 if low is None else each.run.find(low, is_after=False),
                end=each.end if high is None else each.run.find(high, is_after=True),
                descending=descending,
            )
            for each in self.cursors
        ]
        rows = max(ROWS_MIN, min(rows, ROWS_MAX))
        while left := [each for each in left if each.first < each.end]:
            blocks = [each.block(rows) for each in left]
            edge = _outermost([b.edge for b in blocks if b.edge is not None], descending)
            counts = [block.before(edge) for block in blocks]
            if any(counts):
                pairs = zip(blocks, counts, strict=True)
                yield _joined([block.cut(n) for block, n in pairs if n], descending)
                left = [each.without(n) for each, n in zip(left, counts, strict=True)]
            elif rows < ROWS_MAX:
                rows *= 2
            else:
                assert edge is not None
                yield edge
                left = [each.behind(edge) for each in left]


def _joined(found: Sequence[tuple[pa.Array, np.ndarray]], descending: bool) -> Window:
    """Return sorted entries as one window, without those whose rows are not visible."""
    values = found[0][0] if len(found) == 1 else pa.concat_arrays([one for one, _ in found])
    places = np.concatenate([places for _, places in found])
    order = np.arange(len(places))
    if len(found) > 1:
        order = pc.sort_indices(values).to_numpy()
    order = order[::-1] if descending else order
    order: Any = order[places[order] != _GONE]
    if len(order) < len(places) or len(found) > 1 or descending:
        values, places = values.take(order), places[order]
    return Window(values, places)


def _above(
    table_schema: TableSchema, overlay: Overlay, column: str
) -> Iterator[tuple[pa.Array, np.ndarray]]:
    """Yield the values of the visible rows of the levels above base, and their places."""
    for level in overlay.levels:
        ordinals = level.ordinals
        batches = level.source.rows_at(level.parts, ordinals, table_schema, [column])
        arrays = [batch.column(0) for batch in batches]
        if arrays:
            yield pa.concat_arrays(arrays), ~(ordinals + level.first)


def _uncovered(
    base: Base, spans: Sequence[tuple[int, int]], stored: str
) -> Iterator[tuple[pa.Array, np.ndarray]]:
    """Yield the values of some parts of base, and their positions."""
    for first, end in spans:
        batches = base.table.scan([stored], within=(first, end), with_hidden=True)
        yield pa.concat_arrays([batch.column(0) for batch in batches]), np.arange(first, end)


def _sorted(found: Sequence[tuple[pa.Array, np.ndarray]]) -> SortedRows:
    """Sort values without the nulls."""
    values = pa.concat_arrays([values for values, _ in found])
    order = pc.sort_indices(values).slice(0, len(values) - values.null_count)
    places = np.concatenate([places for _, places in found])
    return SortedRows(values.take(order), places[order.to_numpy()], values.null_count)


def _outermost(edges: Sequence[pa.Array], descending: bool) -> pa.Scalar[Any] | None:
    """Return the first of some values in an order."""
    if not edges:
        return None
    values: Any = pa.concat_arrays(edges)
    return pc.max(values) if descending else pc.min(values)


def _count(values: pa.Array, sign: str, value: pa.Scalar[Any]) -> int:
    compare: Any = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater}[sign]
    return compare(values, value).true_count
