"""Adoption: a newer manifest record, ours or another's, becomes the view; no result changes.

A sealed memtable leaves the union in the same assignment in which its flushed rows enter it, so a
reader sees its rows exactly once in any view (lance#6814 is the same change in two steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.levels.base import Base
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.memtable import Memtable
from siltstone.engine.levels.sources import Source
from siltstone.engine.levels.visibility import VisibilityCache
from siltstone.engine.read import image_scan
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import Generation, Levels, State, View
from siltstone.errors import SiltstoneError
from siltstone.formats.manifest import KeyedStorage, Record
from siltstone.maintenance.flush.fallback import are_readable
from siltstone.maintenance.retention import carried
from siltstone.storage.tables.values import Span
from siltstone.telemetry.notices import NoticeLog
from siltstone.units import require

_log = NoticeLog(__name__)


def refreshed(
    view: View,
    record: Record,
    lease: object,
    flushed: Sequence[Generation],
    readers: Readers,
    bases: Mapping[str, Base] = MappingProxyType({}),
    *,
    resident_bytes_max: int,
) -> View:
    """Return the view over `record`, with the `flushed` generations no longer sealed.

    `bases` are those that were made ready for it.

    The catalog loses the past that the record has trimmed, and the levels lose rows only it needed.
    """
    view = view.changed(catalog=carried(view.catalog, record), record=record, lease=lease)
    alive = {step.id for table in view.catalog.tables for step in table.incarnations}
    done = {id(generation) for generation in flushed}
    stored = {storage.incarnation: storage for storage in record.keyed}
    levels: dict[int, Levels] = {}
    for number, old in view.levels.items():
        if number not in alive:
            continue
        storage = stored.get(number)
        moved = tuple(s for g in flushed for s in g.sources.get(number, ()))
        if storage is None or (storage == old.storage and not moved and are_readable(old)):
            levels[number] = old
        else:
            found = _levels(view, old, storage, moved, readers)
            levels[number] = found if found.base is old.base else _with_ready(found, bases)
    levels = _spilled(view, levels, readers, resident_bytes_max)
    return view.changed(levels=levels, sealed=tuple(g for g in view.sealed if id(g) not in done))


def followed(
    view: View,
    record: Record,
    lease: object,
    flushed: Sequence[Generation],
    bases: Mapping[str, Base],
    *,
    readers: Readers,
    resident_bytes_max: int,
) -> View:
    """Return a follower's view over `record`; no other level of it holds an older record.

    `bases` are those of `folded_bases`, as far as they were made before.
    """
    bases = folded_bases(view, record, readers, bases)
    found = refreshed(
        view, record, lease, flushed, readers, bases, resident_bytes_max=resident_bytes_max
    )
    return renewed(found, renewals(found, readers))


def folded_bases(
    view: View, record: Record, readers: Readers, made: Mapping[str, Base] = MappingProxyType({})
) -> dict[str, Base]:
    """Return the bases of `record` that follow on those of the view, ready to find rows, by path.

    It reads files, unless they are among those that were `made` before. Done before the swap, no
    reader waits for it, nor builds it in its own thread.
    """
    found: dict[str, Base] = {}
    for storage in record.keyed:
        old = view.levels.get(storage.incarnation)
        if (
            old is None
            or old.base is None
            or storage.base is None
            or storage.base == old.storage.base
            or storage.merged_seq < old.storage.merged_seq
        ):
            continue
        if storage.base.path in made:
            found[storage.base.path] = made[storage.base.path]
            continue
        table = catalogs.owner_of(view.catalog, storage.incarnation)
        if not catalogs.has_schema(table, storage.base_schema):
            continue  # of a commit that the view has not: who adopts the record has
        base = readers.base(table, storage)
        if base is not None:
            try:
                base.carry(old.base)
            except SiltstoneError as error:  # its readers will get it
                _log.warning("%s is not ready to find rows: %s", storage.base.path, error)
                continue
            found[storage.base.path] = base
    return found


def carry_images(state: State, readers: Readers) -> None:
    """Carry all images on to the newest seq: from the next view on, rows may be missing for it.

    A fold puts rows into base, where they no longer have seqs; a flush may put them into files.
    """
    view = state.view
    for number, levels in view.levels.items():
        if not levels.images.begin_view():
            continue
        try:
            reader = shown_reader(view, number, state.visible, readers)
            if reader is None:
                levels.images.drop()
            else:
                image_scan.carry_images(reader.levels, reader.seq, levels.images)
        except SiltstoneError as error:  # whoever reads the table will say so
            _log.warning("no image of %s is carried on: %s", levels.storage.folder, error)
            levels.images.drop()


def shown_reader(view: View, number: int, seq: int, readers: Readers) -> KeyedReader | None:
    """Return a reader of an incarnation; None if its table shows another one at `seq`, or none."""
    table = catalogs.owner_of(view.catalog, number)
    if catalogs.incarnation_of(table, seq).id != number or not catalogs.is_alive(table, seq):
        return None
    reader = readers.open(view, table, seq)
    return reader if isinstance(reader, KeyedReader) else None


def _with_ready(levels: Levels, bases: Mapping[str, Base]) -> Levels:
    pin = levels.storage.base
    ready = None if pin is None else bases.get(pin.path)
    return levels if ready is None else replace(levels, base=ready)


def renewals(view: View, readers: Readers) -> dict[int, tuple[Source, ...]]:
    """Return the flushed levels with history runs reopened from the view's record, under its lease.

    Runs of older records keep these records from vacuum while they are in the view.
    """
    return {
        number: tuple(
            found
            for source in old.flushed
            for found in (
                _reopened(view, old, source, readers)
                if isinstance(source, HistoryRun) and source.lease is not view.lease
                else (source,)
            )
        )
        for number, old in view.levels.items()
    }


def renewed(view: View, flushed: Mapping[int, tuple[Source, ...]]) -> View:
    """Return the view with `flushed`; only flushed rows get a new form."""
    levels = {
        number: replace(old, flushed=flushed[number]) if number in flushed else old
        for number, old in view.levels.items()
    }
    return view.changed(levels=levels)


def _reopened(view: View, levels: Levels, run: HistoryRun, readers: Readers) -> tuple[Source, ...]:
    seqs = (max(run.low, levels.storage.merged_seq), run.high)
    found = _runs(view, levels.storage, (run,), seqs, readers)
    require(bool(found), f"the record has no history for a run up to seq {run.high}")
    return found


def _runs(
    view: View, storage: KeyedStorage, known: Sequence[Source], seqs: Span, readers: Readers
) -> tuple[Source, ...]:
    """Return history above one seq, up to another; what is `known` of it is not read again."""
    table = catalogs.owner_of(view.catalog, storage.incarnation)
    return readers.history(table, storage, *seqs, view.lease, known=known)


def _levels(
    view: View, old: Levels, storage: KeyedStorage, moved: Sequence[Source], readers: Readers
) -> Levels:
    if storage.merged_seq < old.storage.merged_seq:  # our bulk load is not in the record yet
        storage = storage.with_base_of(old.storage)
    base = old.base
    if storage.base != old.storage.base:
        table = catalogs.owner_of(view.catalog, storage.incarnation)
        base = readers.base(table, storage)
    kept = tuple(
        source.above(storage.merged_seq) if isinstance(source, HistoryRun) else source
        for source in (*old.flushed, *moved)
        if source.last_seq > storage.merged_seq
    )
    if storage.fallbacks or any(isinstance(source, HistoryRun) for source in moved):
        # Attached rows: the record names their files, or nothing does once they are in history. And
        # rows that Lance refused are those of their files, also for the next reader of history.
        kept = _runs(view, storage, kept, (storage.merged_seq, view.record.flushed_seq), readers)
    rest = tuple(source for source in old.sealed if all(source is not m for m in moved))
    found = old.kept if base is old.base else VisibilityCache()
    return Levels(storage, kept, rest, old.active, base, old.pending, found, old.images)


def _spilled(
    view: View, levels: dict[int, Levels], readers: Readers, resident_bytes_max: int
) -> dict[int, Levels]:
    """Give memory back: over the bound flushed memtables are read from history instead.

    Those that Lance refused are not in history, and stay.
    """
    resident = {
        number: sum(
            source.nbytes
            for source in found.flushed
            if isinstance(source, Memtable)
            and source.last_seq <= found.storage.foldable_seq(source.last_seq)
        )
        for number, found in levels.items()
    }
    total = sum(resident.values())
    for number in sorted(resident, key=lambda n: -resident[n]):
        if total <= resident_bytes_max or not resident[number]:
            break
        found = levels[number]
        seqs = (found.storage.merged_seq, view.record.flushed_seq)
        runs = _runs(view, found.storage, found.flushed, seqs, readers)
        if runs:
            levels[number] = replace(found, flushed=runs)
            total -= resident[number]
    return levels
