"""Sources: the levels above base, memtables and runs of history, and what is asked of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np

from siltstone.engine.levels.attached import Attached
from siltstone.engine.levels.chunk import Chunk, IndexedSlice, between
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.load_keys import LoadSlice
from siltstone.engine.levels.memtable import Memtable, indexed
from siltstone.formats.keys import Codes
from siltstone.formats.log.group import UPSERT
from siltstone.formats.manifest import Load

Source: TypeAlias = Memtable | HistoryRun
"""A level above base: row versions of one table over some seqs."""


def changes(source: Source, after: int, seq: int) -> list[Chunk]:
    """Return the row versions of a level with after < seq <= `seq`, in seq order.

    It reads all columns of a run of history: ask before the rows are history.
    """
    if isinstance(source, Memtable):
        return source.changes(after, seq)
    found = (between(chunk, after, seq) for chunk in source.chunks_upto(seq))
    return [chunk for chunk in found if len(chunk.codes)]


def codes_between(source: Source, after: int, seq: int) -> Iterator[tuple[Codes, np.ndarray]]:
    """Yield the codes of the row versions with after < seq <= `seq`, and the seq of each.

    No value is read but for keys that are in no index.
    """
    if isinstance(source, HistoryRun):
        yield from source.codes_between(after, seq)
        return
    for chunk in source.changes(after, seq):
        yield chunk.codes, chunk.seqs


def known_of(sources: Iterable[Source], low: int) -> tuple[IndexedSlice, ...]:
    """Return the index of adjacent levels that become one run above `low`.

    None if one of them has no index in memory, or has rows at or below `low`.
    """
    found: list[IndexedSlice] = []
    for source in sources:
        known = source.indexed if isinstance(source, HistoryRun) else indexed(source)
        if not known or source.first_seq <= low:
            return ()
        found += known
    return tuple(found)


def load_of(source: Source, *, rows_min: int) -> Load | None:
    """Return what names an attached run as a part of history; None: its rows are copied there.

    A copy costs little where its files have on average less than `rows_min` rows, and a merge would
    join such parts; and a delete has only keys.
    """
    table = source.table if isinstance(source, HistoryRun) else None
    if not isinstance(table, Attached) or table.op != UPSERT:
        return None
    is_large = table.rows >= rows_min * max(1, len(table.spans))
    return Load(table.seq, table.pin) if is_large else None


def vector_bytes(source: Source) -> int:
    """Return the bytes of the vectors of its rows that searches keep."""
    if not isinstance(source, HistoryRun):
        return source.origin.nbytes
    loaded: LoadSlice | None = source.__dict__.get("_slice")  # a search of a load made it
    kept = 0 if loaded is None else loaded.origin.nbytes
    return kept + sum(item.part.origin.nbytes for item in source.indexed)
