"""Recall: the share of the nearest rows that an index of vectors finds.

Some rows of base are the queries; each is compared with all rows, in one scan for all queries, and
is not counted itself.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from siltstone.engine.columns.row_vectors import VectorBlock, block_of
from siltstone.storage.tables.tables import PinnedTable
from siltstone.storage.tables.values import IndexSpec, NearestQuery, Ranked

QUERIES_MAX, NEAREST = 32, 10
_MARGIN = 8  # as a search asks for, which measures what it gets
_TIES_MAX = 50


def recall_of(table: PinnedTable, spec: IndexSpec) -> float | None:
    """Return how many of the `NEAREST` rows searches find, at their defaults, from 0 to 1.

    Args:
        table: A base with the index, of which at most `QUERIES_MAX` rows are the queries.
        spec: An index of vectors.

    Returns:
        None: base has no two rows to compare.
    """
    metric = str(dict(spec.options).get("metric", "l2"))
    positions, block = _sample(table, spec.column, metric)
    if not len(positions):
        return None
    found = table.search.nearest(_query(spec, block, metric, NEAREST + 1 + _MARGIN, is_exact=False))
    exact = table.search.nearest(
        _query(spec, block, metric, NEAREST + 1 + _TIES_MAX, is_exact=True)
    )
    shares = [
        share
        for number, position in enumerate(positions.tolist())
        if (share := _share(found, exact, number, position)) is not None
    ]
    return round(float(np.mean(shares)), 4) if shares else None


def _sample(table: PinnedTable, column: str, metric: str) -> tuple[np.ndarray, VectorBlock]:
    """Return some positions, spread over base, and their vectors, each with a distance to others.

    Twice as many are read as there are queries, for there may be rows without a vector.
    """
    live = np.flatnonzero(table.live.bools())
    chosen = np.unique(np.linspace(0, len(live) - 1, 2 * QUERIES_MAX).astype(np.int64))
    positions = live[chosen] if len(live) else live
    taken = table.take(positions, [column]).column(0)
    chunks = taken.chunks or [pa.array([], taken.type)]
    block = block_of(pa.concat_arrays(chunks), 0)
    kept = np.isfinite(block.squares)
    if metric == "cosine":
        kept &= block.squares > 0
    kept = np.flatnonzero(kept)[:QUERIES_MAX]
    return positions[kept], VectorBlock(0, block.matrix[kept], block.squares[kept])


def _query(
    spec: IndexSpec, block: VectorBlock, metric: str, k: int, *, is_exact: bool
) -> NearestQuery:
    return NearestQuery(spec.column, block.matrix, k, metric, indexed=not is_exact, index=spec.name)


def _share(found: Ranked, exact: Ranked, number: int, position: int) -> float | None:
    """Return what a query found of its nearest rows; None: there are no others.

    Rows as far as the last of them are as good as it.
    """
    others = (exact.queries == number) & (exact.positions != position)
    distances = np.sort(exact.distances[others])[:NEAREST]
    if not len(distances):
        return None
    good = exact.positions[others & (exact.distances <= distances[-1])]
    mine = found.positions[found.queries == number]
    return min(len(np.intersect1d(good, mine)), len(distances)) / len(distances)
