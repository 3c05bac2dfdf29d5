"""Adoption: a newer manifest record, ours or another's, becomes the view; no answer changes.

A sealed memtable leaves the union in the same assignment in which it enters as flushed rows, so a
reader sees it exactly once whichever view it took (lance#6814 is the same thing done in two steps).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from siltstone.engine import catalog as catalogs
from siltstone.engine.history_run import HistoryRun
from siltstone.engine.memtable import Memtable
from siltstone.engine.read_union import Source
from siltstone.engine.reader import Readers
from siltstone.engine.view import Generation, Levels, View
from siltstone.formats.manifest import KeyedStorage, Record


def adopt(
    view: View,
    record: Record,
    lease: object,
    flushed: Sequence[Generation],
    readers: Readers,
    *,
    resident_bytes_max: int,
) -> View:
    """Return the view over `record`, with the `flushed` generations no longer sealed."""
    done = {id(generation) for generation in flushed}
    stored = {storage.incarnation: storage for storage in record.keyed}
    levels: dict[int, Levels] = {}
    for number, old in view.levels.items():
        storage = stored.get(number)
        moved = tuple(g.memtables[number] for g in flushed if number in g.memtables)
        if storage is None or (storage == old.storage and not moved):
            levels[number] = old
        else:
            levels[number] = _levels(view, old, storage, moved, readers)
    levels = _spilled(view, levels, record, lease, readers, resident_bytes_max)
    sealed = tuple(g for g in view.sealed if id(g) not in done)
    return view.changed(record=record, lease=lease, levels=levels, sealed=sealed)


def _levels(
    view: View,
    old: Levels,
    storage: KeyedStorage,
    moved: Sequence[Memtable],
    readers: Readers,
) -> Levels:
    if storage.merged_seq < old.storage.merged_seq:  # our bulk load is not in the record yet
        storage = replace_base(storage, old.storage)
    base = old.base
    if storage.base != old.storage.base:
        table = catalogs.owner_of(view.catalog, storage.incarnation)
        base = readers.base(table, storage)
    kept = [s for s in (*old.flushed, *moved) if last_seq(s) > storage.merged_seq]
    rest = tuple(memtable for memtable in old.sealed if all(memtable is not m for m in moved))
    return Levels(storage, tuple(kept), rest, old.active, base)


def replace_base(storage: KeyedStorage, ours: KeyedStorage) -> KeyedStorage:
    """Return `storage` with the base of `ours`."""
    return KeyedStorage(
        storage.incarnation,
        storage.folder,
        ours.base,
        ours.base_schema,
        ours.merged_seq,
        storage.history,
        storage.history_columns,
        storage.history_from,
    )


def last_seq(source: Source) -> int:
    """Return the last seq in a flushed source."""
    if isinstance(source, HistoryRun):
        return source.high
    assert isinstance(source, Memtable)
    return source.last_seq


def _spilled(
    view: View,
    levels: dict[int, Levels],
    record: Record,
    lease: object,
    readers: Readers,
    resident_bytes_max: int,
) -> dict[int, Levels]:
    """Give memory back: over the bound flushed memtables are read from history instead."""
    resident = {
        number: sum(s.nbytes for s in found.flushed if isinstance(s, Memtable))
        for number, found in levels.items()
    }
    total = sum(resident.values())
    for number in sorted(resident, key=lambda n: -resident[n]):
        if total <= resident_bytes_max or not resident[number]:
            break
        found = levels[number]
        table = catalogs.owner_of(view.catalog, number)
        run = readers.history(
            table, found.storage, found.storage.merged_seq, record.flushed_seq, lease
        )
        if run is not None:
            levels[number] = replace(found, flushed=(run,))
            total -= resident[number]
    return levels
