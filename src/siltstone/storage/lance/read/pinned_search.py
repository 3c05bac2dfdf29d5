"""Pinned search: how Lance ranks rows of one pinned version, and what its indexes know of words.

Rows that are not to be found go into a block list, by their row ids: so they take no place among
those that are (ADR 55).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from siltstone.formats.bits import Bits, all_of
from siltstone.process import deadline
from siltstone.storage.lance.files.row_addresses import RowIds, row_ids
from siltstone.storage.lance.read.version import LanceVersion
from siltstone.storage.lance.search import nearest, text_search
from siltstone.storage.lance.search.block_list import BlockLists
from siltstone.storage.lance.search.value_runs import ValueRuns
from siltstone.storage.tables.tables import OrderedValues, PinnedTable
from siltstone.storage.tables.values import (
    Lengths,
    NearestQuery,
    Ranked,
    TextIndex,
    TextTotals,
    WordsQuery,
)

_COUNTED_MAX = 4096


class LanceSearch:
    """See `tables.PinnedSearch`; threads may share it.

    Args:
        version: The version.
        table: Its rows, to be scanned.
    """

    def __init__(self, version: LanceVersion, table: PinnedTable) -> None:
        self._version, self._table = version, table
        self._word_counts: dict[tuple[str, str], int] = {}
        self._totals: dict[str, TextTotals] = {}
        self._lengths: dict[str, Lengths] = {}
        self._ordered: dict[str, OrderedValues | None] = {}
        self._runs = ValueRuns(version.data, version.pin.folder)

    def nearest(
        self, asked: NearestQuery, visible: Bits | None = None, *, is_kept: bool = True
    ) -> Ranked:
        """See `tables.PinnedSearch.nearest`."""
        if len(asked.vectors) > 1 and nearest.QUERY in self._version.schema.names:
            # Lance's answer would have two columns of this name, so it refuses such a search.
            each = (replace(asked, vectors=vector[None]) for vector in asked.vectors)
            return nearest.joined([self.nearest(one, visible, is_kept=is_kept) for one in each])
        self._version.ready_for((asked.column, *asked.bringing))
        with self._version.data.reading(self._version.pin.folder):
            index = (
                self.index_for(asked.column, asked.metric, asked.index) if asked.indexed else None
            )
            of_column = [each for each in self._indexes if each.column == asked.column]
            among = self._version.fragments if len(of_column) > 1 else None
            blocked = self._without(visible, is_kept)
            options = nearest.options_of(asked, blocked, index, among)
            return nearest.ranked(self._scanned(options), self._version.addresses, asked)

    def has_index(self, column: str, metric: str) -> bool:
        """See `tables.PinnedSearch.has_index`."""
        return self.index_for(column, metric) is not None

    def index_for(
        self, column: str, metric: str, name: str | None = None
    ) -> nearest.VectorIndex | None:
        """Return the index with a metric to ask, of several that with most rows; None: no one.

        `name`: that index, if it has rows.
        """
        fit = [
            each
            for each in self._indexes
            if (each.column, each.metric) == (column, metric)
            and each.segments
            and name in {None, each.name}
        ]
        return max(fit, key=lambda index: (index.rows, index.name), default=None)

    def lengths(self, column: str) -> Lengths:
        """See `tables.PinnedSearch.lengths`."""
        known = self._lengths.get(column)
        if known is None:
            batches = deadline.checked(self._table.scan([column], with_hidden=True))
            known = nearest.lengths_of(batch.column(0) for batch in batches)
            self._lengths[column] = known
        return known

    @property
    def text_indexes(self) -> Sequence[TextIndex]:
        """See `tables.PinnedSearch.text_indexes`."""
        return self._text_indexes

    @cached_property
    def _text_indexes(self) -> list[TextIndex]:
        version = self._version
        if not version.has_sound_indexes:
            return []
        return text_search.indexes_of(version.dataset, version.segments)

    def with_words(
        self, asked: WordsQuery, visible: Bits | None = None, *, is_kept: bool = True
    ) -> Ranked:
        """See `tables.PinnedSearch.with_words`."""
        self._version.ready_for((asked.column,))
        with self._version.data.reading(self._version.pin.folder):
            options = text_search.options_of(asked, self._without(visible, is_kept))
            return text_search.ranked(self._scanned(options), self._row_ids, self._version.rows)

    def text_totals(self, index: TextIndex, visible: Bits | None = None) -> TextTotals:
        """See `tables.PinnedSearch.text_totals`."""
        known = self._totals.get(index.name) if visible is None else None
        if known is not None:
            return known
        opened = self._version.data.opened_file
        paths = self._version.paths_of_index(index.name)
        with self._version.data.reading(self._version.pin.folder):
            if visible is not None:
                return text_search.totals(paths, opened, lambda ids: self._are_among(ids, visible))
            found = self._totals[index.name] = text_search.totals(paths, opened)
            return found

    def _are_among(self, ids: np.ndarray, visible: Bits) -> np.ndarray:
        """Return which row ids are those of visible rows."""
        positions = self._row_ids.positions(ids, self._version.rows)
        found = positions >= 0
        found[found] = visible.has(positions[found])
        return found

    def count_with_word(self, column: str, word: str, visible: Bits | None = None) -> int:
        """See `tables.PinnedSearch.count_with_word`; of all rows it is remembered."""
        known = self._word_counts.get((column, word)) if visible is None else None
        if known is not None:
            return known
        everything = visible or all_of(self._version.rows)
        asked = WordsQuery(column, word, self._version.rows, covered=True)
        found = len(self.with_words(asked, everything).positions)
        if visible is None and len(self._word_counts) < _COUNTED_MAX:
            self._word_counts[column, word] = found
        return found

    def row_ids(self, positions: np.ndarray) -> np.ndarray:
        """See `tables.PinnedSearch.row_ids`."""
        return self._row_ids.at(positions)

    def places_of(self, row_ids: np.ndarray) -> np.ndarray:
        """See `tables.PinnedSearch.places_of`."""
        found = self._row_ids.positions(row_ids, self._version.rows)
        return found[found >= 0]

    def values_in_order(self, column: str) -> OrderedValues | None:
        """See `tables.PinnedSearch.values_in_order`."""
        if column not in self._ordered:
            self._ordered[column] = self._values_in_order(column)
        return self._ordered[column]

    def _values_in_order(self, column: str) -> OrderedValues | None:
        version, is_sound = self._version, self._version.has_sound_indexes
        mine = [s for s in version.segments if (s.kind, s.columns) == ("btree", (column,))]
        name = min((segment.index for segment in mine), default="")
        mine = [segment for segment in mine if segment.index == name and segment.covered]
        if not mine or not is_sound:
            return None
        runs = self._runs.open(self._table, mine, version.parts, version.paths_of_index(name))
        covered = {span for segment in mine for span in segment.covered}
        left = [span for span in version.spans if span not in covered and span[0] < span[1]]
        return None if runs is None else OrderedValues(runs, left)

    def _without(self, visible: Bits | None, is_kept: bool) -> Any:
        """Return the block list of all rows that are not visible; None: no row is blocked."""
        if visible is None and self._version.pin.hidden:
            visible = self._version.live
        return self._blocked.without(visible, is_kept=is_kept) if visible else None

    def _scanned(self, options: dict[str, Any]) -> Any:
        return self._version.dataset.scanner(**options).to_table()

    @cached_property
    def _indexes(self) -> list[nearest.VectorIndex]:
        if not self._version.has_sound_indexes:
            return []
        version = self._version
        spans = [span for span in version.spans if span[0] < span[1]]
        return nearest.indexes_of(version.dataset, version.segments, spans)

    @cached_property
    def _blocked(self) -> BlockLists:
        return BlockLists(self._version.rows, lambda: self._row_ids)

    @cached_property
    def _row_ids(self) -> RowIds:
        return row_ids(self._version.dataset, self._version.fragments)
