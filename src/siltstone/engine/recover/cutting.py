"""Cutting: what a follower holds, cut where the owner's flush ended.

An owner seals its memtables at the end of a segment, and flushes them whole. A follower learns of
it from the record alone, when its memtable holds later rows, too: it cuts it in two. The first part
is what the owner's sealed generation was, so a newer record is adopted as an owner adopts it, and
what lies above is not read from the log again.
"""

from __future__ import annotations

from dataclasses import replace

from siltstone.engine.levels.memtable import Memtable, part_of
from siltstone.engine.levels.sources import Source
from siltstone.engine.read.view import Generation, Levels, View
from siltstone.formats.manifest import Record


def cut(view: View, record: Record) -> tuple[View, tuple[Generation, ...]]:
    """Return a follower's view, its rows up to the record's `flushed_seq` sealed; and these.

    `view` is of an older record, and has all commits up to that seq.
    """
    seq = record.flushed_seq
    if seq == view.record.flushed_seq:
        return view, ()
    levels, flushed = dict[int, Levels](), dict[int, tuple[Source, ...]]()
    for number, old in view.levels.items():
        levels[number], moved = _cut(old, seq)
        if moved:
            flushed[number] = moved
    generation = Generation(
        view.generation, seq, record.last_time_us, record.wal_floor, view.catalog, view.log, flushed
    )
    log = view.log.above(seq)
    return view.changed(levels=levels, log=log, generation=view.generation + 1), (generation,)


def _cut(levels: Levels, seq: int) -> tuple[Levels, tuple[Source, ...]]:
    moved, later = list[Source](), list[Source]()
    for source in levels.sealed:
        low, high = _parts(source, seq)
        moved += low
        later += high
    active = levels.active
    if active.rows:
        low, high = _parts(active, seq)
        moved += low
        active = high[0] if high else Memtable(active.contents.tail.table_schema)
        assert isinstance(active, Memtable)
    found = replace(levels, sealed=(*moved, *later), active=active, pending=len(later))
    return found, tuple(moved)


def _parts(source: Source, seq: int) -> tuple[tuple[Source, ...], tuple[Source, ...]]:
    """Return what of a level is up to `seq`, and what is above; a bulk commit has one seq."""
    if source.last_seq <= seq:
        if isinstance(source, Memtable):
            source.settle()
        return (source,), ()
    if not isinstance(source, Memtable) or source.first_seq > seq:
        return (), (source,)
    low, high = part_of(source, 0, seq), part_of(source, seq, source.last_seq)
    low.settle()
    return (low,), (high,)
