"""Takeover: an owner goes on from what its process has followed of the log, as a worker.

    the record that it claimed ─▶ bases, histories, plain tables: opened anew, as by any owner
    what was followed          ─▶ rows above the record's `flushed_seq`, commits, definitions
    the log                    ─▶ the frames behind the place where that ends (`wal.recovery`)

The state is the one of an ordinary open, which replays these rows. What does not fit is replayed.
A snapshot that this process took of them as a worker goes on: the owner appends above its seq.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.levels.attached import Attached, run_bytes
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.sources import Source
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import Levels, View
from siltstone.engine.recover.cutting import cut
from siltstone.engine.recover.following import Followed
from siltstone.engine.recover.replay import Replayer, view_of
from siltstone.errors import SiltstoneError
from siltstone.formats.manifest import Catalog, Record, TableDefinition
from siltstone.maintenance.retention import carried
from siltstone.storage.manifest.manifest_store import ManifestStore


def taken_over(
    followed: Followed, record: Record, lease: object, manifests: ManifestStore, readers: Readers
) -> Replayer | None:
    """Return what applies the rest of the log over `record`; None: what was followed does not fit.

    `record` is the newest one, leased, which this process claimed.
    """
    known, seq = followed.view.record, followed.last_seq
    is_within = known.flushed_seq <= record.flushed_seq <= seq == followed.place.at.seq
    if not is_within or not _follows(known, record, manifests):
        return None
    view, _ = cut(followed.view, record)
    catalog, log, above = carried(view.catalog, record), view.log, seq - record.flushed_seq
    levels = _levels(catalog, view, view_of(record, lease, readers), readers)
    if levels is None or (log.first, log.count) != (record.flushed_seq + 1, above):
        return None
    replayer = Replayer(View(record, lease, catalog, levels, (), log, 1), readers)
    replayer.last_seq = seq
    if above:
        replayer.last_time_us = followed.last_time_us
        is_cut = view is not followed.view
        replayer.nbytes = _nbytes(levels) if is_cut else followed.nbytes
    return replayer


def _follows(known: Record, record: Record, manifests: ManifestStore) -> bool:
    """Say whether the claimed record is of the store that was followed, and came later."""
    with suppress(SiltstoneError):
        manifests.require_follows(known, record)
        return True
    return False


def _levels(
    catalog: Catalog, followed: View, stored: View, readers: Readers
) -> dict[int, Levels] | None:
    """Return the levels of all tables; None: of some nothing was followed."""
    found = dict[int, Levels]()
    for table in catalog.tables:
        for step in table.incarnations if catalogs.schema_of(table).key else ():
            old = followed.levels.get(step.id)
            if old is None:
                return None
            found[step.id] = _above(stored, old, table, readers)
    return found if stored.levels.keys() <= found.keys() else None


def _above(stored: View, old: Levels, table: TableDefinition, readers: Readers) -> Levels:
    """Return the levels of one incarnation; the record has none of one that is newer."""
    storage, flushed, base = old.storage, (), None
    below = stored.levels.get(storage.incarnation)
    if below is not None:
        storage, flushed, base = below.storage, below.flushed, below.base
    if old.storage.merged_seq > stored.record.flushed_seq:  # a load, by a frame above the record
        storage = storage.with_base_of(old.storage)
        base = readers.base(table, storage)
    sealed = tuple(
        _reopened(source, readers) for source in old.unsealed if source is not old.active
    )
    return Levels(storage, flushed, sealed, old.active, base, len(sealed))


def _reopened(source: Source, readers: Readers) -> Source:
    """Return a level of the log; the files of a bulk commit are opened by the owner's storage."""
    if not isinstance(source, HistoryRun):
        return source
    rows = source.table
    assert isinstance(rows, Attached)  # a frame names no other files
    pin = rows.pin
    made = Attached(readers.pinned(pin), rows.seq, rows.op, partial(readers.keys, pin))
    return source.through(lambda: made)


def _nbytes(levels: dict[int, Levels]) -> int:
    """Return what the levels count towards the next checkpoint."""
    return sum(
        run_bytes(source.rows) if isinstance(source, HistoryRun) else source.nbytes
        for each in levels.values()
        for source in (*each.sealed, each.active)
    )
