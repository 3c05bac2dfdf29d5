"""Fresh: the nearest of the row versions above base, by an exact scan of the matrices of levels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from siltstone.engine.columns.row_vectors import VectorBlock, block_of
from siltstone.engine.filter.filters import Filter
from siltstone.engine.levels.overlay import Lives
from siltstone.engine.read.read_union import KeyedReader
from siltstone.process import deadline
from siltstone.query.search.candidates import Candidates, within
from siltstone.query.search.distances import measured, roughly
from siltstone.query.search.vector_query import VectorQuery


def fresh(reader: KeyedReader, query: VectorQuery, wanted: Filter | None) -> Iterator[Candidates]:
    """Yield the rows of each level that may be among the k nearest; their places are ordinals."""
    schema = reader.table_schema
    column, name = query.column, schema.ids[query.column]
    for number, level in enumerate(reader.overlay().levels):
        lives = matching(reader, level, wanted)
        if not lives.any():
            continue
        start = 0
        for index, part in enumerate(level.parts):
            inside = lives[start : start + part.rows]
            if inside.any():
                blocks = reader.levels.vectors.blocks(level, index, schema, column, name, block_of)
                for block in deadline.checked(blocks):
                    yield from nearest_of(query, block, inside, number, start)
            start += part.rows


def matching(reader: KeyedReader, level: Lives, wanted: Filter | None) -> np.ndarray:
    """Return which rows of a level are live and match."""
    lives = level.kept.to_numpy(zero_copy_only=False)
    if wanted is None:
        return lives
    names = list(wanted.columns)
    batches = level.source.rows_kept(level.parts, level.kept, reader.table_schema, names)
    masks = [wanted.mask(batch).to_numpy(zero_copy_only=False) for batch in batches]
    matching = lives.copy()
    matching[lives] = np.concatenate(masks)
    return matching


def nearest_of(
    query: VectorQuery, block: VectorBlock, lives: np.ndarray, level: int, start: int
) -> Iterator[Candidates]:
    """Yield the candidates of a block of a part: `lives` are the rows of the part to look at."""
    lives = lives[block.start : block.end] & ~np.isnan(block.squares)
    if not lives.any():
        return
    for number, vector in enumerate(query.vectors):
        rows = _nearest(query, block, lives, vector)
        found = measured(query.metric, block.matrix[rows], vector)
        kept = within(query, found)
        if kept.any():
            places = rows[kept] + block.start + start
            yield Candidates.of(number, level, places, found[kept])


def _nearest(
    query: VectorQuery, block: VectorBlock, lives: np.ndarray, vector: np.ndarray
) -> np.ndarray:
    """Return the rows that may be among the k nearest within the bounds, ascending."""
    least, most = roughly(query.metric, block, vector)
    unknown = ~np.isfinite(least) | ~np.isfinite(most)  # beyond what a float holds
    lower = None if query.within[0] is None else np.float64(query.within[0])
    sure = lives & ~unknown
    if lower is not None:
        lives, sure = lives & (unknown | (most >= lower)), sure & (least >= lower)
    if np.count_nonzero(sure) <= query.k:
        return np.flatnonzero(lives)
    farthest = np.partition(most[sure], query.k - 1)[query.k - 1]
    return np.flatnonzero(lives & (unknown | (least <= farthest)))
