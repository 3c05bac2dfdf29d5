"""Merge: fold history up to `flushed_seq` into base; any process, any time.

    read record n ──▶ per table: newest row per key in (merged_seq, upto] ──▶ one staged rewrite
                  ──▶ publish one record for all tables ──▶ promote

It changes no result: base at `merged_seq` and history above it hold the same rows as before. The
merge hides the rows of a table's base that were replaced or deleted, and appends the newest live
rows, in one Lance commit; it rewrites small parts, and those with many hidden rows. A large history
is folded in slices (`slices`), the steps above for each; a merge ends when all is folded that was
flushed when it began. A crash leaves unused files, and the slices before it. A merge that loses the
race for a table looks again: if the winner's base already has the rows, it is done. A table that is
damaged holds up no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa

from siltstone.arguments import count_of
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.levels.history_run import HistoryRun
from siltstone.engine.levels.overlay import Overlay
from siltstone.engine.read.read_levels import ReadLevels
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import Readers
from siltstone.errors import (
    BusyError,
    CorruptionError,
    InvariantError,
    ReplacedError,
    SiltstoneError,
)
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import KeyedStorage, Load, Pin, Record, TableDefinition
from siltstone.formats.types.widening import is_pair
from siltstone.maintenance.merge.adoption import adoptable
from siltstone.maintenance.merge.merge_task import Execute, live_rows, survivors
from siltstone.maintenance.merge.slices import slice_end, slice_rows
from siltstone.maintenance.merge.unordered import lacks_order
from siltstone.storage.manifest.manifest_store import existing
from siltstone.storage.site import Site, held
from siltstone.storage.tables.jobs import GcHorizonError, Job, refuse_below_gc_horizon
from siltstone.storage.tables.tables import TableWriter
from siltstone.storage.tables.values import AdoptedLoad, join
from siltstone.telemetry.notices import NoticeLog

ATTEMPTS = 8
_log = NoticeLog(__name__)
COMPACT_BELOW_ROWS = 65_536
_APPEND_ROWS = 131_072


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge: its seq, its tables (by name), the rows that it put into base.

    It was planned again for each of `replans`, which say why: other writers came first.

    Examples:
        >>> db.checkpoint() and db.merge().rows
        2
    """

    seq: int
    tables: tuple[str, ...]
    rows: int
    replans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deferred:
    """A typed result, not an error: the work is deferred, nothing is wrong; try again later.

    Examples:
        >>> isinstance(db.merge(), st.Deferred)
        False
    """

    reason: str
    attempts: int


class _LostError(Exception):
    """Another process changed the base of a table that we merged: plan again."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """The next base of one incarnation, made from `base` as planned."""

    incarnation: int
    base: Pin | None
    storage: KeyedStorage
    rows: int


class Promoter(msgspec.Struct, frozen=True):
    """Shows what a record names to readers of the plain path. Holds no lock and no state."""

    site: Site

    def promote_late(self, record: Record) -> None:
        """Promote; what fails is left for the next merge: no reader of ours looks there."""
        try:
            self.promote(record)
        except SiltstoneError as error:
            _log.warning("readers of the plain path see an older version for now: %s", error)

    def promote(self, record: Record) -> None:
        """Show the kept bases and plain versions to readers of the plain path; idempotent."""
        manifests = self.site.manifests
        manifests.require_ours(record)  # the names are the same ones in a copy of the store
        kept = existing(manifests, (n for n in manifests.numbers() if n < record.number))
        for pins in shown_pins([*kept, record]).values():
            self.site.tables.names.promote(pins, pins[-1])


class Merger:
    """Merges tables of one store. Holds no lock and no state.

    Args:
        catch_up: Brings the lagging indexes of a table (None: of all) up to date.
        rows_max: How many rows of history a slice has; None: by the memory of `readers`.
    """

    def __init__(
        self,
        site: Site,
        readers: Readers,
        catch_up: Callable[[int | None], None] = lambda _: None,
        *,
        rows_max: int | None = None,
    ) -> None:
        self._rows_max = slice_rows(readers.index_bytes_max) if rows_max is None else rows_max
        self.site = site
        self._manifests, self._tables, self._jobs = site.manifests, site.tables, site.jobs
        self._readers, self._catch_up = readers, catch_up
        self._promote_late = Promoter(site).promote_late

    @held
    def merge(
        self,
        table: int | None = None,
        *,
        attempts: int = ATTEMPTS,
        execute: Execute | None = None,
    ) -> Merged | Deferred:
        """Merge one table, or all of them at one seq.

        Args:
            table: The id of one table; it has nothing to merge before a record knows it.
            attempts: The maximum number of plans of each slice, if other writers change the
                inputs.
            execute: Runs tasks that write the rows, and returns their results in the same order.
                Default: one writer in this process.

        Raises:
            RequestError: A budget is below 1.
            UnavailableError: The file system refuses.
            SiltstoneError: A table cannot be merged, whatever the reason: it is damaged, or Lance
                refuses its rows. It was not merged, the others were.
            ReplacedError: Another store is at the path by now, or none: it was left alone.
        """
        count_of("attempts", attempts, 1)
        failed, total, target, replans = 0, Merged(0, (), 0), None, list[str]()
        failures: dict[int, SiltstoneError] = {}
        record: Record | None = None
        while failed < attempts:
            try:
                record, lease = self._manifests.lease_newest(record)
                with lease:
                    target = record.flushed_seq if target is None else target
                    done = self._merge(record, table, execute, failures)
            except (_LostError, GcHorizonError, BusyError) as error:
                replans.append(str(error))
                failed += 1
                continue
            failed, total = 0, _sum(total, done)
            if done.seq >= target:
                break
        for error in failures.values():
            raise error
        if failed:
            return Deferred(replans[-1], attempts)
        return replace(total, replans=tuple(replans))

    def _merge(
        self,
        record: Record,
        table: int | None,
        execute: Execute | None,
        failures: dict[int, SiltstoneError],
    ) -> Merged:
        """Fold a slice of each table that has not failed; return how far all of these are."""
        cross(Failpoint.MERGE_BEFORE_PLAN)
        wanted = [
            (t, s)
            for t, s in candidates(record, table)
            if (_is_behind(record, t, s) or lacks_order(t, s)) and s.incarnation not in failures
        ]
        if not wanted:
            self._promote_late(record)
            return Merged(record.flushed_seq, (), 0)
        planned: list[_Planned] = []
        names: list[str] = []
        about = tuple(catalogs.name_of(each) for each, _ in wanted)
        with self._jobs.begin("merge", about, above_us=record.gc_horizon_us) as job:
            for each, storage in wanted:
                try:
                    found = self._planned(record, each, storage, execute)
                except ReplacedError:
                    raise
                except SiltstoneError as error:
                    failures[storage.incarnation] = error
                    continue
                except pa.ArrowException as error:
                    text = f"{catalogs.name_of(each)!r} cannot be merged: {error}"
                    failures[storage.incarnation] = InvariantError(text)
                    continue
                planned.append(found)
                if found.base != found.storage.base:
                    names.append(catalogs.name_of(each))
            if not planned:
                raise failures[wanted[0][1].incarnation]
            cross(Failpoint.MERGE_AFTER_FRAGMENTS)
            written = job.as_written()
            published = self._manifests.publish(
                lambda now: _changed(now, planned, written), base=record
            )
            cross(Failpoint.MERGE_AFTER_PUBLISH)
            job.finish()
        self._promote_late(published)
        self._catch_up(table)
        seq = min(item.storage.merged_seq for item in planned)
        return Merged(seq, tuple(names), sum(item.rows for item in planned))

    def _planned(
        self, record: Record, table: TableDefinition, storage: KeyedStorage, execute: Execute | None
    ) -> _Planned:
        """Plan a table; without the key runs that are found damaged: the next base has new ones."""
        base = storage.base
        while True:
            try:
                return replace(self._plan(record, table, storage, execute), base=base)
            except CorruptionError as error:
                spared = self._spared(storage, error)
                if spared is None:
                    raise
                storage = spared

    def _spared(self, storage: KeyedStorage, error: CorruptionError) -> KeyedStorage | None:
        """Return a storage without the key run that is damaged; None: another file is."""
        keys, pin = self._tables.keys, storage.base
        base = None if pin is None else keys.spared(pin, error)
        if base is not None:
            return msgspec.structs.replace(storage, base=base)
        loads = [(load, keys.spared(load.pin, error)) for load in storage.loads]
        if not any(pin for _, pin in loads):
            return None
        done = [Load(load.seq, load.pin if pin is None else pin) for load, pin in loads]
        return msgspec.structs.replace(storage, loads=tuple(done))

    def _plan(
        self, record: Record, table: TableDefinition, storage: KeyedStorage, execute: Execute | None
    ) -> _Planned:
        low, history = storage.merged_seq, self._readers.history
        last = storage.foldable_seq(record.flushed_seq)
        runs = history(table, storage, low, last, None)
        upto = slice_end(runs, last, self._rows_max)
        table_schema = table_schema_of(catalogs.schema_of(table))
        if upto < record.flushed_seq:
            runs = history(table, storage, low, upto, None)
            table_schema = _schema_at(table, storage, upto)
        base = self._readers.base(table, storage)
        reader = KeyedReader(ReadLevels(table_schema, runs, base), upto)
        overlay = reader.overlay()
        cross(Failpoint.MERGE_AFTER_PLAN)
        pin = self._base(table, storage, table_schema, overlay)
        drop = overlay.shadowed
        if pin is not None and (overlay.rows or len(drop) > pin.hidden):
            loads, rest = adoptable(self._tables.rewriter, pin, table_schema, overlay)
            if execute is not None:
                pin = self._shared_out(pin, table_schema, rest, drop, loads, execute)
            else:
                pin = self._tables.rewriter.fold(
                    pin,
                    drop=drop,
                    batches=live_batches(rest, table_schema),
                    compact_below=COMPACT_BELOW_ROWS,
                    loads=loads,
                )
        if pin is not None and (pin != storage.base or lacks_order(table, storage)):
            pin = self._tables.keys.cover(pin, table_schema.codec, in_order=True)
            if base is not None:
                self._readers.base_of(pin, table_schema).file_as(base)
        changed = msgspec.structs.replace(
            storage, base=pin, base_schema=0 if pin is None else table_schema.id, merged_seq=upto
        )
        return _Planned(storage.incarnation, storage.base, changed, overlay.rows)

    def _shared_out(
        self,
        pin: Pin,
        table_schema: TableSchema,
        overlay: Overlay,
        drop: np.ndarray,
        loads: Sequence[AdoptedLoad],
        execute: Execute,
    ) -> Pin:
        """Have the rows written by tasks; the pin that they make is that of a fold."""
        has_more = bool(overlay.levels or loads)
        gone = self._tables.rewriter.outworn(
            pin, drop, compact_below=COMPACT_BELOW_ROWS, has_more=has_more
        )
        tasks = [*survivors(pin, table_schema, gone, drop)]
        for level in overlay.levels:
            assert isinstance(level.source, HistoryRun)  # a merge reads what is flushed
            tasks += live_rows(pin, table_schema, level.source, level.ordinals)
        staged = join([*execute(tasks)])
        return self._tables.rewriter.fold_staged(pin, gone, staged, drop, loads)

    def _base(
        self,
        table: TableDefinition,
        storage: KeyedStorage,
        table_schema: TableSchema,
        overlay: Overlay,
    ) -> Pin | None:
        """Return the base to rewrite, with the columns of `table_schema`; None if it is empty."""
        if storage.base is None:
            create, folder = self._tables.writer.create, f"{storage.folder}/base"
            return create(folder, table_schema.arrow) if overlay.rows else None
        if storage.base_schema == table_schema.id:
            return storage.base
        old = table_schema_of(catalogs.schema_by_id(table, storage.base_schema))
        return altered(self._tables.writer, storage.base, old, table_schema)


def candidates(
    record: Record, wanted: int | None
) -> Iterator[tuple[TableDefinition, KeyedStorage]]:
    """Yield the existing keyed tables, or the one with an id, with their current storage.

    Dropped tables, and a table that the record does not know yet, have nothing to merge.
    """
    stored = {storage.incarnation: storage for storage in record.keyed}
    for table in record.catalog.tables:
        if not catalogs.is_alive(table) or (wanted is not None and table.id != wanted):
            continue
        storage = stored.get(catalogs.incarnation_of(table).id)
        if storage is not None:
            yield table, storage


def _is_behind(record: Record, table: TableDefinition, storage: KeyedStorage) -> bool:
    """Tell whether there is something to merge: rows, or a base of an older schema."""
    schemas = (0, catalogs.schema_of(table).id)
    is_above = storage.merged_seq < storage.foldable_seq(record.flushed_seq)
    return is_above or (storage.base_schema not in schemas and not storage.fallbacks)


def _changed(record: Record, planned: Sequence[_Planned], job: Job) -> Record:
    """Return `record` with the merged bases; done where the winner already has as much."""
    wanted = {item.incarnation: item for item in planned}
    if all(_is_in(storage, wanted.get(storage.incarnation)) for storage in record.keyed):
        return record
    refuse_below_gc_horizon(record, job.started_us)
    keyed: list[KeyedStorage] = []
    for storage in record.keyed:
        item = wanted.get(storage.incarnation)
        if item is None or storage.merged_seq > item.storage.merged_seq:
            keyed.append(storage)
        elif storage.base != item.base:
            name = catalogs.name_of(catalogs.owner_of(record.catalog, storage.incarnation))
            raise _LostError(f"another process changed the base of {name!r} meanwhile")
        else:
            keyed.append(storage.with_base_of(item.storage))
    cross(Failpoint.MERGE_BEFORE_PUBLISH)
    return msgspec.structs.replace(record, keyed=tuple(keyed))


def _schema_at(table: TableDefinition, storage: KeyedStorage, upto: int) -> TableSchema:
    """Return the schema of a base that ends before the newest commits.

    It keeps the columns that only these drop: readers of seqs before them need their values.
    """
    found = catalogs.schema_of(table, upto)
    if storage.base_schema > found.id:
        found = catalogs.schema_by_id(table, storage.base_schema)
    return table_schema_of(found)


def _sum(one: Merged, other: Merged) -> Merged:
    names = dict.fromkeys((*one.tables, *other.tables))
    return Merged(other.seq, tuple(names), one.rows + other.rows)


def _is_in(storage: KeyedStorage, item: _Planned | None) -> bool:
    """Tell whether what was planned for a storage is there, or more, or nothing was planned."""
    if item is None or storage.merged_seq > item.storage.merged_seq:
        return True
    return storage == storage.with_base_of(item.storage)


def altered(tables: TableWriter, pin: Pin, old: TableSchema, new: TableSchema) -> Pin:
    """Retype, relax, rename, drop and add columns by id; through free names: two may swap."""
    kinds = {old.names[i]: new.arrow.field(n).type for i, n in new.names.items() if i in old.names}
    retype = {n: kind for n, kind in kinds.items() if is_pair(old.arrow.field(n).type, kind)}
    if retype:
        pin = tables.alter(pin, rename={}, drop=[], add=[], retype=retype)
    drop = [name for column_id, name in old.names.items() if column_id not in new.names]
    moved = {i: n for i, n in old.names.items() if i in new.names and new.names[i] != n}
    relax = _relaxed(old, new)
    if drop or moved or relax:
        aside = {name: f"_{column_id}" for column_id, name in moved.items()}
        pin = tables.alter(pin, rename=aside, drop=drop, add=[], relax=relax)
    fields = (new.arrow.field(n) for i, n in new.names.items() if i not in old.names)
    added = [field.with_nullable(True) for field in fields]  # their parts have values, or null
    back = {f"_{column_id}": new.names[column_id] for column_id in moved}
    if back or added:
        pin = tables.alter(pin, rename=back, drop=[], add=added)
    return pin


def _relaxed(old: TableSchema, new: TableSchema) -> list[str]:
    """Return the old names of the columns that may be null since."""
    strict = {column.id for column in old.schema.columns if not column.nullable}
    return [old.names[c.id] for c in new.schema.columns if c.nullable and c.id in strict]


def live_batches(overlay: Overlay, table_schema: TableSchema) -> Iterator[pa.RecordBatch]:
    """Yield the live rows above base, in large batches."""
    return _in_large_batches(_live_rows(overlay, table_schema))


def _live_rows(overlay: Overlay, table_schema: TableSchema) -> Iterator[pa.RecordBatch]:
    for level in overlay.levels:
        yield from level.source.rows_kept(
            level.parts, level.kept, table_schema, table_schema.arrow.names
        )


def _in_large_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pending: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        if rows >= _APPEND_ROWS:
            yield pa.concat_batches(pending)  # pyright: ignore[reportAttributeAccessIssue]
            pending, rows = [], 0
    if pending:
        yield pa.concat_batches(pending)  # pyright: ignore[reportAttributeAccessIssue]


def shown_pins(records: Iterable[Record]) -> dict[str, list[Pin]]:
    """Return per folder the base pins and plain versions that records name, in their order."""
    found: dict[str, dict[str, Pin]] = {}
    for pin in (pin for record in records for pin in _shown(record)):
        pins = found.setdefault(pin.folder, {})
        pins.pop(pin.path, None)
        pins[pin.path] = pin
    return {folder: list(pins.values()) for folder, pins in found.items()}


def _shown(record: Record) -> Iterator[Pin]:
    yield from (storage.base for storage in record.keyed if storage.base is not None)
    for table in record.catalog.tables:
        if not catalogs.schema_of(table).key:
            yield from (version.pin for step in table.incarnations for version in step.versions)
