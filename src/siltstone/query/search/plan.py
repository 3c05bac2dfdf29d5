"""Plan: a search at one seq: base by its index, the rows above it by themselves, one ranking.

    base     Lance ranks the rows that are visible and match (`stored`)
    levels   an exact scan of the live rows that match, own writes included (`fresh`)
    words    instead of both for texts (`words`): a distance is a score below zero
    merge    the k least distances; rows that are equally far by their keys
    rows     the other columns of those k, by position

What is held is k rows of each query, and the vectors above base that are kept for the next search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from siltstone.engine.filter.filters import Filter
from siltstone.engine.levels.chunk import batch_of
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import PlainReader, Reader
from siltstone.engine.read.row_ids import read_for_ids, with_ids
from siltstone.formats.types.defaults import absent
from siltstone.formats.types.extensions import unwrapped
from siltstone.formats.types.widening import in_type
from siltstone.query.search.candidates import BASE, Candidates, concatenated, joined
from siltstone.query.search.fresh import fresh
from siltstone.query.search.fusion import Fused, Fusion, columns_of, fused, reranked
from siltstone.query.search.stored import Stored
from siltstone.query.search.text_query import SCORE, TextQuery
from siltstone.query.search.vector_query import DISTANCE, QUERY, VectorQuery
from siltstone.query.search.words import word_search

_FEW = 64
_DISTANCE_FIELD = pa.field(DISTANCE, pa.float32(), nullable=False)
_SCORE_FIELD = pa.field(SCORE, pa.float32(), nullable=False)
_QUERY_FIELD = pa.field(QUERY, pa.int32(), nullable=False)


@dataclass(frozen=True, slots=True)
class _Sources:
    """What one search reads: a table at a seq, and the Lance version below it, if there is one."""

    reader: Reader
    stored: Stored | None


def search(
    reader: Reader,
    query: VectorQuery | TextQuery,
    wanted: Filter | None,
    columns: Sequence[str],
) -> pa.Table:
    """Return the k best rows, the best first: of each vector the nearest, or those with the words.

    A row has the highest of the scores of its columns.

    Args:
        reader: The table at the seq to search.
        query: The vectors and how they are compared, or the words.
        wanted: Only rows that match are ranked; None: all.
        columns: The columns to return; the distance, or the score, comes last.
    """
    source = _source(reader, _brought(query, columns))
    best, rows = _chosen(source, _ranked(source, query, wanted), query.k, columns)
    return _answer(query, best, rows)


def search_in_parts(
    reader: Reader,
    query: VectorQuery | TextQuery,
    wanted: Filter | None,
    columns: Sequence[str],
    rows_max: int,
    *,
    is_numbered: bool = False,
) -> pa.RecordBatchReader:
    """Return the rows of `search`, read as they are asked for, `rows_max` at once.

    `is_numbered`: their ids come, too, before the distance or the score.
    """
    source = _source(reader, _brought(query, ()))
    best, _ = _chosen(source, _ranked(source, query, wanted), query.k, ())

    def part(start: int, end: int) -> pa.Table:
        some = best.at(np.arange(start, end))
        if not is_numbered:
            return _answer(query, some, _rows(source, some, columns))
        rows = _rows(source, some, read_for_ids(reader, columns))
        return _answer(query, some, with_ids(reader, rows, columns, some.places))

    starts = range(0, len(best), rows_max)
    parts = (part(start, min(start + rows_max, len(best))) for start in starts)
    batches = (batch for each in parts for batch in each.to_batches())
    return pa.RecordBatchReader.from_batches(part(0, 0).schema, batches)


def _answer(query: VectorQuery | TextQuery, best: Candidates, rows: pa.Table) -> pa.Table:
    """Return the rows of candidates, with their scores, or with whose they are, and how far."""
    if isinstance(query, TextQuery):
        return rows.append_column(_SCORE_FIELD, pa.array(-best.distances))
    if query.is_many:
        rows = rows.append_column(_QUERY_FIELD, pa.array(best.queries))
    return rows.append_column(_DISTANCE_FIELD, pa.array(best.distances))


def search_both(
    reader: Reader,
    words: TextQuery,
    vector: VectorQuery,
    fusion: Fusion,
    wanted: Filter | None,
    columns: Sequence[str],
) -> pa.Table:
    """Return the k rows with the highest scores of a fusion of both searches.

    The distance, the score of the words and the score come last.
    """
    source = _source(reader, _key_names(reader))
    near, _ = _chosen(source, _ranked(source, vector, wanted), vector.k, ())
    best, _ = _chosen(source, _ranked(source, words, wanted), words.k, ())
    found = fused(best, near, fusion)
    if fusion.rerank is not None:
        found = reranked(found, fusion.rerank, _shown(found, _rows(source, found.rows, columns)))
    order = _in_order(found.rows)
    if order is None:
        order = _by_keys(found.rows, _rows(source, found.rows, _key_names(reader)), fusion.k)
    found = found.at(order[: fusion.k])
    return _shown(found, _rows(source, found.rows, columns))


def _shown(found: Fused, rows: pa.Table) -> pa.Table:
    for field, values in columns_of(found):
        rows = rows.append_column(field, values)
    return rows


def _brought(query: VectorQuery | TextQuery, columns: Sequence[str]) -> Sequence[str]:
    """Return the columns that ranked rows bring along.

    Words rank a hundred rows more than are wanted, for short texts often have like scores: to read
    a column of all these would take longer than to rank them.
    """
    return () if isinstance(query, TextQuery) else columns


def _ranked(source: _Sources, query: VectorQuery | TextQuery, wanted: Filter | None) -> Candidates:
    if isinstance(query, TextQuery):
        return _with_words(source, query, wanted)
    return joined(_candidates(source, query, wanted), query.k, _fewer(source, query.k))


def _fewer(source: _Sources, k: int) -> Callable[[Candidates], Candidates]:
    """Return what leaves k of each query, of equals those with the lowest keys."""
    names = _key_names(source.reader)
    return lambda best: best.at(_by_keys(best, _rows(source, best, names), k))


def _with_words(source: _Sources, query: TextQuery, wanted: Filter | None) -> Candidates:
    searches = [
        word_search(source.reader, query, column, weight, wanted, source.stored)
        for column, weight in query.columns
    ]
    fewer = _fewer(source, query.k)
    found = [joined(each.candidates(), query.k, fewer) for each in searches]
    return found[0] if len(found) == 1 else joined([_once(found)], query.k, fewer)


def _chosen(
    source: _Sources, best: Candidates, k: int, columns: Sequence[str]
) -> tuple[Candidates, pa.Table]:
    """Return the k nearest of each query, in order, with some columns."""
    order = _in_order(best)
    if order is not None:  # there are k of each at most
        best = best.at(order)
        return best, _rows(source, best, columns)
    names = list(_key_names(source.reader))
    # One read for the keys and the columns, unless it would be of columns of many other rows.
    is_few = {*columns} <= {*names} or len(best) <= 2 * k + _FEW
    rows = _rows(source, best, list(dict.fromkeys([*names, *columns])) if is_few else names)
    chosen = _by_keys(best, rows.select(names), k)
    best = best.at(chosen)
    if not is_few:
        return best, _rows(source, best, columns)
    return best, rows.take(pa.array(chosen, pa.int64())).select(list(columns))


def _once(found: list[Candidates]) -> Candidates:
    """Return each row once, with its least distance."""
    rows = concatenated(found)
    order = np.lexsort((rows.distances, rows.places, rows.levels))
    levels, places = rows.levels[order], rows.places[order]
    is_first = np.append(True, (levels[1:] != levels[:-1]) | (places[1:] != places[:-1]))
    return rows.at(order[is_first[: len(order)]])


def _candidates(
    source: _Sources, query: VectorQuery, wanted: Filter | None
) -> Iterator[Candidates]:
    if source.stored is not None:
        yield from source.stored.nearest(query, wanted)
    if isinstance(source.reader, KeyedReader):
        yield from fresh(source.reader, query, wanted)


def _source(reader: Reader, columns: Sequence[str]) -> _Sources:
    """Return what a search reads, for an answer with some columns.

    The narrow ones come along with the rows that Lance ranks: a separate read by position takes
    as long as a search. Rows that do not stay among the k cost little then.
    """
    stored = _stored(reader)
    if stored is not None:
        kinds = {name: stored.fields.field(name).type for name in columns if name in stored.names}
        narrow = (stored.names[n] for n, kind in kinds.items() if pa.types.is_primitive(kind))
        stored = replace(stored, bringing=tuple(narrow))
    return _Sources(reader, stored)


def _stored(reader: Reader) -> Stored | None:
    """Return the Lance version that a reader reads; None: it reads none."""
    schema = reader.table_schema
    if isinstance(reader, PlainReader):
        names = {name: name for name in schema.arrow.names}
        table = reader.table
        return None if table is None else Stored(table, table.take, None, names, schema.arrow)
    base = reader.base
    if base is None or not base.rows:
        return None
    shown = schema.arrow.names
    pairs = zip(shown, schema.stored(shown, base.table_schema), strict=True)
    names = {name: found for name, found in pairs if found is not None}
    visible = reader.overlay().visibility.visible
    return Stored(base.table, base.take_read, visible, names, schema.arrow)


def _key_names(reader: Reader) -> tuple[str, ...]:
    return () if isinstance(reader, PlainReader) else reader.table_schema.codec.names


def _in_order(best: Candidates) -> np.ndarray | None:
    """Return the indexes of candidates by distance; None: some are equally far."""
    order = np.lexsort((best.distances, best.queries))
    far, queries = best.distances[order], best.queries[order]
    has_ties = ((far[1:] == far[:-1]) & (queries[1:] == queries[:-1])).any()
    return None if has_ties else order


def _by_keys(best: Candidates, keys: pa.Table, k: int) -> np.ndarray:
    """Return the indexes of the k nearest of each query, in order; of equals by key."""
    unwrapped_keys = [unwrapped(column.combine_chunks()) for column in keys.columns]
    arrays = [pa.array(best.queries), pa.array(best.distances), *unwrapped_keys]
    table = pa.table([*arrays, pa.array(best.places)], [*map(str, range(len(arrays) + 1))])
    order = pc.sort_indices(table, [(name, "ascending") for name in table.column_names])
    indexes = order.to_numpy()
    queries = best.queries[indexes]
    return indexes[np.arange(len(indexes)) - np.searchsorted(queries, queries) < k]


def _rows(source: _Sources, found: Candidates, columns: Sequence[str]) -> pa.Table:
    """Return some columns of the rows of candidates, in their order."""
    fields = source.reader.table_schema.fields(list(columns))
    if not columns:
        return pa.Table.from_batches([batch_of([], fields, len(found))])
    pieces, places = list[pa.Table](), np.zeros(len(found), np.int64)
    start = 0
    for level in np.unique(found.levels).tolist():
        mine = found.levels == level
        unique, back = np.unique(found.places[mine], return_inverse=True)
        pieces.append(_of_level(source, level, unique, columns))
        places[mine] = back + start
        start += len(unique)
    whole = pa.concat_tables(pieces) if pieces else fields.empty_table()
    return whole.take(pa.array(places, pa.int64()))


def _of_level(source: _Sources, level: int, places: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """Return some columns of the rows of one level at some places (ascending)."""
    reader, schema = source.reader, source.reader.table_schema
    fields = schema.fields(list(columns))
    if level == BASE:
        assert source.stored is not None
        return _of_base(source.stored, fields, places)
    assert isinstance(reader, KeyedReader)
    lives = reader.overlay().levels[level]
    mask = np.zeros(len(lives.kept), bool)
    mask[places] = True
    rows = lives.source.rows_kept(lives.parts, pa.array(mask), schema, columns)
    return pa.Table.from_batches(list(rows), fields)


def _of_base(stored: Stored, fields: pa.Schema, places: np.ndarray) -> pa.Table:
    known = [name for name in fields.names if name in stored.names]
    taken = stored.take(places, [stored.names[name] for name in known])
    found = dict(zip(known, taken.columns, strict=True))
    arrays = [
        in_type(found[f.name].combine_chunks(), f.type)
        if f.name in found
        else absent(f, len(places))
        for f in fields
    ]
    return pa.table(arrays, schema=fields)
