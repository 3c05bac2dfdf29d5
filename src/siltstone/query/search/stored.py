"""Stored: the nearest of the rows of one Lance version, by its index or by a scan of Lance.

What newer rows hide, and what the filter leaves out, takes no place among the k: the one is in the
block list, the other a prefilter where Lance and Arrow agree on it, else in the block list, too.

Lance's distances are rounded in another way than ours, or are those of an index. So a few rows more
are asked for and measured; and again more, while a row that was not among them may be as near as
the last. An index that finds nearly the nearest is asked once. Lance measures in float32: where
products cancel, overflow or vanish, which the lengths of the vectors tell, rows are compared here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from siltstone.engine.catalog.table_schema import aligned
from siltstone.engine.columns.row_vectors import VectorBlock, block_of
from siltstone.engine.filter import pushed
from siltstone.engine.filter.filters import Filter
from siltstone.engine.levels.chunk import batch_of
from siltstone.formats.bits import Bits, all_of
from siltstone.formats.types.defaults import initial_in
from siltstone.formats.types.widening import is_pair
from siltstone.process import deadline
from siltstone.query.search.candidates import BASE, Candidates, concatenated, within
from siltstone.query.search.distances import error_of_float32, measured
from siltstone.query.search.fresh import nearest_of
from siltstone.query.search.vector_query import K_MAX, VectorQuery
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import POSITION, NearestQuery, Ranked, Span

MEASURED_MAX = 2_000
"""So few rows that match a filter are read and measured themselves."""
_MARGIN, _GROWTH, _ASKED_MAX = 8, 8, 100_000
_ROUNDED, _ROUGH = 1e-4, 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Blocked:
    """Which rows Lance ranks: those of `visible` (None: all that are not hidden) that match.

    `is_kept`: other searches will ask for `visible`, too. `few`: so few rows match that they are
    all here, by position.
    """

    prefilter: str | None
    visible: Bits | None
    is_kept: bool = True
    few: np.ndarray | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no row to rank."""
        return self.visible is not None and not self.visible.count


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """One version, and which of its rows a read sees; None: all that are not hidden.

    `names` are the version's names of columns, by those of the schema that the reader shows;
    `fields` is that schema. The rows that Lance ranks bring the columns `bringing` along, by the
    version's names; `brought` are those of the last search. `taken` reads rows by their positions
    from where they cost least. One thread.
    """

    table: PinnedTable
    taken: Callable[[np.ndarray, Sequence[str]], pa.Table]
    visible: Bits | None
    names: Mapping[str, str]
    fields: pa.Schema
    bringing: tuple[str, ...] = ()
    brought: list[tuple[np.ndarray, pa.Table]] = field(default_factory=list)

    @property
    def alike(self) -> dict[str, str]:
        """The names of the columns that the version has in the type in which they are shown."""
        fields, stored = self.fields, self.table.schema
        return {
            name: here
            for name, here in self.names.items()
            if not is_pair(stored.field(here).type, fields.field(name).type)
        }

    def take(self, positions: np.ndarray, columns: Sequence[str]) -> pa.Table:
        """Return rows by position (ascending), by the version's names of columns.

        What a search brought along is not read again.
        """
        for known, rows in self.brought:
            at = known.searchsorted(positions)
            if (
                {*columns} <= {*rows.column_names}
                and len(known)
                and (known[np.minimum(at, len(known) - 1)] == positions).all()
            ):
                return rows.select(list(columns)).take(pa.array(at, pa.int64()))
        return self.taken(positions, columns)

    def bring(self, ranked: Ranked) -> None:
        """Keep what the rows of a search brought along, and no longer those of an earlier one."""
        known, first = np.unique(ranked.positions, return_index=True)
        rows = ranked.brought.take(pa.array(first, pa.int64()))
        self.brought[:] = [(known, rows)]

    def nearest(self, query: VectorQuery, wanted: Filter | None) -> Iterator[Candidates]:
        """Yield the rows that may be among the k nearest; their places are positions."""
        if query.column not in self.names or not self.table.rows:
            return
        if query.k > K_MAX:  # Lance would sort them all
            yield from self._compared(query, wanted)
            return
        blocked = self.blocked(wanted, MEASURED_MAX)
        if blocked.few is not None:
            yield self._measured(query, blocked.few)
        elif not blocked.is_empty:
            ranked = self._ranked(query, blocked)
            yield from self._compared(query, wanted) if ranked is None else [ranked]

    def _error(self, query: VectorQuery, *, is_indexed: bool) -> float:
        """Return by how much Lance may miss a distance; 0: what it returned tells it."""
        if is_indexed or query.metric in {"l2", "hamming"}:
            return 0.0
        lengths = self.table.search.lengths(self.names[query.column])
        return error_of_float32(query.metric, query.vectors, lengths)

    def _compared(self, query: VectorQuery, wanted: Filter | None) -> Iterator[Candidates]:
        """Yield the rows that may be among the k nearest, each compared here."""
        names = [query.column, *(wanted.columns if wanted else ())]
        prefilter = None if wanted is None else wanted.prefilter(self.alike)
        for positions, rows in self.rows_of(list(dict.fromkeys(names)), prefilter=prefilter):
            lives = self.are_visible(positions)
            if wanted is not None:
                lives = lives & wanted.mask(rows).to_numpy(zero_copy_only=False)
            block = block_of(rows.column(query.column), 0)
            for found in nearest_of(query, block, lives, BASE, 0):
                places = positions[found.places]
                yield Candidates(found.queries, found.levels, places, found.distances)

    def _ranked(self, query: VectorQuery, blocked: Blocked) -> Candidates | None:
        """Return the rows that Lance ranks nearest; None: it does not tell which they are."""
        name = self.names[query.column]
        is_indexed = not query.is_exact and self.table.search.has_index(name, query.metric)
        error = self._error(query, is_indexed=is_indexed)
        asked, most = query.k + _MARGIN, _ASKED_MAX // len(query.vectors)
        while not math.isinf(error):
            lance = self._asked(query, asked, blocked.prefilter, error)
            ranked = self.table.search.nearest(lance, blocked.visible, is_kept=blocked.is_kept)
            self.bring(ranked)
            found, (distances, has_distance) = ranked.queries, self._distances(query, ranked)
            kept = has_distance & within(query, distances)
            best = Candidates.of(found[kept], BASE, ranked.positions[kept], distances[kept])
            if error > _ROUGH * (1 + _largest(best.distances)):
                return None
            slack = error or _slack(distances, ranked.distances)
            if math.isinf(slack) and not is_indexed:
                return None
            if not _may_lack(query, asked, best, found, ranked.distances, slack):
                return best
            if asked >= most:
                return best if is_indexed else None
            asked = min(asked * _GROWTH, most)
        return None

    def _asked(
        self, query: VectorQuery, k: int, prefilter: str | None, error: float
    ) -> NearestQuery:
        lower, least = query.within[0], None
        if lower is not None and math.isfinite(lower):
            least = lower - error - _ROUNDED * (1 + abs(lower))
        return NearestQuery(
            self.names[query.column],
            query.vectors,
            k,
            query.metric,
            not query.is_exact,
            query.probes,
            query.refine,
            least,
            prefilter,
            tuple(dict.fromkeys([self.names[query.column], *self.bringing])),
            wanted=query.k,
        )

    def _distances(self, query: VectorQuery, ranked: Ranked) -> tuple[np.ndarray, np.ndarray]:
        """Return by row its distance, and whether it has one."""
        distances = np.full(len(ranked.positions), np.nan, np.float32)
        unique, back = np.unique(ranked.positions, return_inverse=True)
        block = self._block(query, unique)
        for number in np.unique(ranked.queries).tolist():
            mine = ranked.queries == number
            vectors = block.matrix[back[mine]]
            distances[mine] = measured(query.metric, vectors, query.vectors[number])
        return distances, ~np.isnan(block.squares[back])

    def _measured(self, query: VectorQuery, positions: np.ndarray) -> Candidates:
        block = self._block(query, positions)
        found = list[Candidates]()
        for number, vector in enumerate(query.vectors):
            distances = measured(query.metric, block.matrix, vector)
            kept = within(query, distances) & ~np.isnan(block.squares)
            found.append(Candidates.of(number, BASE, positions[kept], distances[kept]))
        return concatenated(found)

    def _block(self, query: VectorQuery, positions: np.ndarray) -> VectorBlock:
        taken = self.take(positions, [self.names[query.column]])
        return block_of(taken.column(0).combine_chunks(), 0)

    @property
    def all_visible(self) -> Bits:
        """The positions of the rows that a read sees."""
        return self.table.live if self.visible is None else self.visible

    def are_visible(self, positions: np.ndarray) -> np.ndarray:
        """Return which of the rows at some positions, as `rows_of` yields them, a read sees."""
        return (
            np.ones(len(positions), bool) if self.visible is None else self.visible.has(positions)
        )

    def blocked(self, wanted: Filter | None, few_max: int = -1) -> Blocked:
        """Return what tells Lance which rows to rank: those that a read sees, and that match.

        `few_max`: if no more match, and Lance does not know the filter, they are returned alone.
        """
        if wanted is None:
            return Blocked(None, self.visible)
        prefilter = pushed.render(wanted.push, self.alike, exact=True)
        if prefilter is not None:
            return Blocked(prefilter, self.visible)
        positions = self._matching(wanted)
        if len(positions) <= few_max:
            return Blocked(None, None, few=positions)
        return Blocked(None, _only(positions, self.table.rows), is_kept=False)

    def rows_of(
        self, columns: Sequence[str], *, prefilter: str | None = None, within: Span | None = None
    ) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Yield rows with some columns, and their positions; hidden rows, too, if some are."""
        names = [name for name in columns if name in self.names]
        fields = pa.schema([self.fields.field(name) for name in columns])
        batches = self.table.scan(
            [self.names[name] for name in names],
            prefilter=prefilter,
            positions=True,
            within=within,
            with_hidden=self.visible is not None,
        )
        for batch in deadline.checked(batches):
            arrays = aligned(batch, map(self.names.get, columns), fields)
            yield batch.column(POSITION).to_numpy(), batch_of(arrays, fields, batch.num_rows)

    def may_have(self, column: str) -> bool:
        """Say whether rows may have a value in a column: it is stored, or has an initial value."""
        return column in self.names or initial_in(self.fields.field(column)) is not None

    def _matching(self, wanted: Filter) -> np.ndarray:
        """Return the positions of the visible rows that match, ascending."""
        found = [np.zeros(0, np.int64)]
        prefilter = wanted.prefilter(self.alike)
        for positions, rows in self.rows_of(list(wanted.columns), prefilter=prefilter):
            found.append(positions[wanted.mask(rows).to_numpy(zero_copy_only=False)])
        everything = np.concatenate(found)
        return everything[self.are_visible(everything)]


def _only(positions: np.ndarray, rows: int) -> Bits:
    """Return the set of some positions."""
    has = np.zeros(rows, bool)
    has[positions] = True
    return Bits(np.packbits(has, bitorder="little"), rows) if rows else all_of(0)


def tied_at(distances: np.ndarray, k: int) -> bool:
    """Say whether the last of some distances is as near as the k-th least of them."""
    return len(distances) >= k and bool(distances.max() <= np.partition(distances, k - 1)[k - 1])


def _largest(distances: np.ndarray) -> float:
    return float(np.abs(distances[np.isfinite(distances)]).max(initial=0))


def _slack(distances: np.ndarray, lance: np.ndarray) -> float:
    """Return by how much Lance may miss a distance, as some tell; inf: they are of an index."""
    with np.errstate(invalid="ignore"):
        slack = 4 * _largest(distances - lance)
    return slack if slack <= _ROUNDED * (1 + _largest(lance)) else math.inf


def _may_lack(
    query: VectorQuery,
    asked: int,
    best: Candidates,
    queries: np.ndarray,
    lance: np.ndarray,
    slack: float,
) -> bool:
    """Say whether a row that was not asked for may be among the k nearest of some query."""
    if math.isinf(slack):
        return False  # an index finds nearly the nearest
    for number in range(len(query.vectors)):
        mine = queries == number
        if np.count_nonzero(mine) < asked:
            continue  # there are no more
        farthest, upper = lance[mine].max() - slack, query.within[1]
        if upper is not None and farthest >= np.float64(upper):
            continue  # the others are beyond the bound
        near = np.sort(best.distances[best.queries == number])[: query.k]
        if len(near) < query.k or near[-1] + slack >= farthest:
            return True
    return False
