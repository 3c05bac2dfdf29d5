"""Plan: a search at one seq: base by its index, the rows above it by their vectors, one ranking.

    base     Lance ranks the rows that are visible and match (`stored`)
    levels   an exact scan of the live rows that match, own writes included (`fresh`)
    merge    the k least distances; rows that are equally far by their keys
    rows     the other columns of those k, by position

What is held is k rows of each query, and the vectors above base that are kept for the next search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter.filters import Filter
from siltstone.engine.levels.chunk import batch_of
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import PlainReader, Reader
from siltstone.query.search.candidates import BASE, Candidates, joined
from siltstone.query.search.fresh import fresh
from siltstone.query.search.stored import Stored
from siltstone.query.search.vector_query import DISTANCE, QUERY, VectorQuery

_DISTANCE_FIELD = pa.field(DISTANCE, pa.float32(), nullable=False)
_QUERY_FIELD = pa.field(QUERY, pa.int32(), nullable=False)


def search(
    reader: Reader, query: VectorQuery, wanted: Filter | None, columns: Sequence[str]
) -> pa.Table:
    """Return the k rows of each query with the nearest vectors, the nearest first.

    Args:
        reader: The table at the seq to search.
        query: The vectors and how they are compared.
        wanted: Only rows that match are ranked; None: all.
        columns: The columns to return; the distance comes last.
    """
    return _answer(reader, query, _best(reader, query, wanted), columns)


def search_in_parts(
    reader: Reader,
    query: VectorQuery,
    wanted: Filter | None,
    columns: Sequence[str],
    rows_max: int,
) -> pa.RecordBatchReader:
    """Return the rows of `search`, read as they are asked for, `rows_max` at once."""
    best = _best(reader, query, wanted)
    starts = range(0, len(best), rows_max)
    parts = (best.at(np.arange(start, min(start + rows_max, len(best)))) for start in starts)
    batches = (
        batch for part in parts for batch in _answer(reader, query, part, columns).to_batches()
    )
    empty = _answer(reader, query, best.at(np.zeros(0, np.int64)), columns)
    return pa.RecordBatchReader.from_batches(empty.schema, batches)


def _best(reader: Reader, query: VectorQuery, wanted: Filter | None) -> Candidates:
    """Return the k nearest of each query, in their order."""
    best = joined(_candidates(reader, query, wanted), query.k)
    return best.at(_ranked(reader, best, query.k))


def _answer(
    reader: Reader, query: VectorQuery, best: Candidates, columns: Sequence[str]
) -> pa.Table:
    """Return the rows of candidates, with whose they are, and how far."""
    rows = _rows(reader, best, columns)
    if query.is_many:
        rows = rows.append_column(_QUERY_FIELD, pa.array(best.queries))
    return rows.append_column(_DISTANCE_FIELD, pa.array(best.distances))


def _candidates(reader: Reader, query: VectorQuery, wanted: Filter | None) -> Iterator[Candidates]:
    stored = _stored(reader)
    if stored is not None:
        yield stored.nearest(query, wanted)
    if isinstance(reader, KeyedReader):
        yield from fresh(reader, query, wanted)


def _stored(reader: Reader) -> Stored | None:
    """Return the Lance version that a reader reads; None: it reads none."""
    schema = reader.table_schema
    if isinstance(reader, PlainReader):
        names = {name: name for name in schema.arrow.names}
        return None if reader.table is None else Stored(reader.table, None, names, schema.arrow)
    base = reader.base
    if base is None or not base.rows:
        return None
    shown = schema.arrow.names
    pairs = zip(shown, schema.stored(shown, base.table_schema), strict=True)
    names = {name: found for name, found in pairs if found is not None}
    visible = reader.overlay().visibility.visible
    return Stored(base.table, visible, names, schema.arrow)


def _ranked(reader: Reader, best: Candidates, k: int) -> np.ndarray:
    """Return the indexes of the k nearest of each query, in order; of equals by key."""
    names = () if isinstance(reader, PlainReader) else reader.table_schema.codec.names
    order = np.lexsort((best.distances, best.queries))
    far, queries = best.distances[order], best.queries[order]
    if not ((far[1:] == far[:-1]) & (queries[1:] == queries[:-1])).any():
        return order  # no two are equally far: there are k of each at most
    keys = _rows(reader, best, names)
    arrays = [pa.array(best.queries), pa.array(best.distances), *keys.columns]
    table = pa.table([*arrays, pa.array(best.places)], [*map(str, range(len(arrays) + 1))])
    order = pc.sort_indices(table, [(name, "ascending") for name in table.column_names])
    indexes = order.to_numpy()
    queries = best.queries[indexes]
    return indexes[np.arange(len(indexes)) - np.searchsorted(queries, queries) < k]


def _rows(reader: Reader, found: Candidates, columns: Sequence[str]) -> pa.Table:
    """Return some columns of the rows of candidates, in their order."""
    fields = reader.table_schema.fields(list(columns))
    if not columns:
        return pa.Table.from_batches([batch_of([], fields, len(found))])
    pieces, places = list[pa.Table](), np.zeros(len(found), np.int64)
    start = 0
    for level in np.unique(found.levels).tolist():
        mine = found.levels == level
        unique, back = np.unique(found.places[mine], return_inverse=True)
        pieces.append(_of_level(reader, level, unique, columns))
        places[mine] = back + start
        start += len(unique)
    whole = pa.concat_tables(pieces) if pieces else fields.empty_table()
    return whole.take(pa.array(places, pa.int64()))


def _of_level(reader: Reader, level: int, places: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """Return some columns of the rows of one level at some places (ascending)."""
    schema = reader.table_schema
    fields = schema.fields(list(columns))
    if level == BASE:
        return _of_base(reader, places, columns)
    assert isinstance(reader, KeyedReader)
    lives = reader.overlay().levels[level]
    mask = np.zeros(len(lives.kept), bool)
    mask[places] = True
    rows = lives.source.rows_kept(lives.parts, pa.array(mask), schema, columns)
    return pa.Table.from_batches(list(rows), fields)


def _of_base(reader: Reader, places: np.ndarray, columns: Sequence[str]) -> pa.Table:
    stored = _stored(reader)
    assert stored is not None
    fields = reader.table_schema.fields(list(columns))
    known = [name for name in columns if name in stored.names]
    taken = stored.table.take(places, [stored.names[name] for name in known])
    found = dict(zip(known, taken.columns, strict=True))
    arrays = [
        found[field.name] if field.name in found else pa.nulls(len(places), field.type)
        for field in fields
    ]
    return pa.table(arrays, schema=fields)
