"""Unmerged: what a merge can fold into base, and when it is worth one.

A merge costs by the rows that it folds, and a deletion file (at most 131 kB) for each part that it
touches. An un-merged row costs scans more than one of base, and its index takes memory. So merges
begin early, long before writers are slowed (`pace.py`). A search compares all un-merged vectors,
and keeps them; so what it keeps counts, too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.levels.history_run import HistoryRun, index_bytes
from siltstone.engine.levels.memtable import Memtable
from siltstone.engine.levels.sources import Source, vector_bytes
from siltstone.engine.read.view import Generation, Levels, View

MERGE_ROWS_MIN = 200_000
MERGE_SHARE = 0.1
"""Of base. Uniform upserts write 2.26, 2.59, 2.94 and 3.70 bytes per byte of user data at merges of
0.2, 0.1, 0.05 and 0.02 of a base of 1 M rows (ADR 45)."""
MERGE_MEMORY_SHARE = 1 / 32
MERGE_VECTORS_SHARE = 1 / 16
"""Less than a third of what finds rows may take, so they have room until the merge ends."""
ROW_BYTES = 64


def wants_merge(view: View, memory_bytes_max: int, without: Container[int] = ()) -> bool:
    """Return whether there is enough to merge: rows of a table, or bytes of memory.

    Here and below, incarnations in `without` do not count.
    """
    if history_bytes(view, without) >= MERGE_MEMORY_SHARE * memory_bytes_max:
        return True
    if flushed_vector_bytes(view, without) >= MERGE_VECTORS_SHARE * memory_bytes_max:
        return True
    for levels in _living(view, without):
        base = 0 if levels.base is None else levels.base.rows
        if foldable_rows(levels) >= max(MERGE_ROWS_MIN, MERGE_SHARE * base):
            return True
    return False


def unmerged_rows(view: View, without: Container[int] = ()) -> int:
    """Return the row versions that a merge would fold now."""
    return sum(map(foldable_rows, _living(view, without)))


def foldable_rows(levels: Levels) -> int:
    """Return the row versions of one table that a merge would fold now."""
    return sum(source.rows for source in _foldable(levels))


def history_bytes(view: View, without: Container[int] = ()) -> int:
    """Return the bytes of the indexes, when loaded, of all that a merge would fold now.

    Flushed memtables that stay in memory have a share of their own, and count as history.
    """
    return sum(
        ROW_BYTES * source.rows if isinstance(source, Memtable) else index_bytes(source)
        for levels in _living(view, without)
        for source in _foldable(levels)
    )


def flushed_vector_bytes(view: View, without: Container[int] = ()) -> int:
    """Return the bytes of the vectors that searches keep of all that a merge would fold now."""
    living = _living(view, without)
    return sum(vector_bytes(source) for levels in living for source in _foldable(levels))


def sealed_bytes(sealed: Sequence[Generation]) -> int:
    """Return the bytes of memtables that wait to be flushed."""
    levels = (found for each in sealed for found in each.sources.values())
    return sum(_bytes(source) for sources in levels for source in sources)


def _bytes(source: Source) -> int:
    return index_bytes(source) if isinstance(source, HistoryRun) else source.nbytes


def _foldable(levels: Levels) -> Iterator[Source]:
    """Yield the flushed levels that a merge folds: not those from the first refused row on."""
    for source in levels.flushed:
        if source.last_seq <= levels.storage.foldable_seq(source.last_seq):
            yield source


def _living(view: View, without: Container[int]) -> Iterator[Levels]:
    """Yield the levels of the tables that exist: history of what was dropped is never merged."""
    for table in view.catalog.tables:
        number = catalogs.incarnation_of(table).id
        if catalogs.is_alive(table) and number in view.levels and number not in without:
            yield view.levels[number]
