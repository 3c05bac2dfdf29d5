"""Checkpoint: sealed memtables become history in Lance, and the log below them is free again.

    seal ──▶ flush ──▶ publish ──▶ retire
    a step of the   no lock; files   one record   one assignment swaps the view, then the log's
    leader, us      and pins, synced for all      segments below the floor are recycled

Many tables are flushed two at a time (`side_by_side`). Rows of a table that Lance refuses go to
files of ours (`fallback`), and hold up no other table.

Nothing waits for it: commits continue into fresh memtables, and readers see a sealed memtable until
the assignment in which its flushed rows replace it. A failure at any step leaves the sealed
generation in the union and its frames in the log; the next checkpoint flushes it again. A crash
before the publish leaves unused files; a crash after it leaves segments that recovery skips.

Lock: one checkpoint at a time, over all steps. A thread that holds another lock never waits for it.
No thread waits for it after the store ends: a signal's handler may end the store in the middle of a
checkpoint, on the thread that holds the lock, and would wait for itself.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.commit_log import COMMITS_SCHEMA
from siltstone.engine.catalog.table_schema import TableSchema, whole_table_schema
from siltstone.engine.commit.committer import Committer
from siltstone.engine.commit.interrupts import DeferredSignals
from siltstone.engine.levels.memtable import Memtable
from siltstone.engine.levels.sources import Source, load_of
from siltstone.engine.read.reader import Readers
from siltstone.engine.read.view import Generation, View
from siltstone.errors import BusyError, ClosedError, FencedError, ReplacedError, SiltstoneError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import Catalog, Fallback, KeyedStorage, Load, Pin, Record
from siltstone.formats.schema import (
    history_field,
    history_schema,
)
from siltstone.formats.types.widening import widens
from siltstone.maintenance.flush import commit_parts
from siltstone.maintenance.flush.commit_parts import COMMIT_PARTS_MAX
from siltstone.maintenance.flush.fallback import (
    OF_ONE_TABLE,
    are_readable,
    fallback_sources,
    joined,
    reason_of,
    stretches,
)
from siltstone.maintenance.flush.histories import Histories, history_batches, stored_after
from siltstone.maintenance.flush.ready import made_ready
from siltstone.maintenance.flush.refresh import (
    carry_images,
    folded_bases,
    refreshed,
    renewals,
    renewed,
)
from siltstone.maintenance.flush.side_by_side import side_by_side
from siltstone.maintenance.retention import carried
from siltstone.storage.files.arrow_file import DIRECTORY as FALLBACK
from siltstone.storage.site import Site
from siltstone.storage.tables.jobs import Begun, GcHorizonError, refuse_below_gc_horizon
from siltstone.storage.tables.store_tables import Tables
from siltstone.storage.tables.values import NO_FILES, Compacted, StagedFiles
from siltstone.storage.wal.wal import Wal
from siltstone.telemetry.notices import NoticeLog
from siltstone.telemetry.works import WorkTimes
from siltstone.units import SegmentNumber

_log = NoticeLog(__name__)

COMMITS_FOLDER = "commits"
ATTEMPTS = 3
LOAD_ROWS_MIN = 65_536
"""As in a merge: it joins parts with fewer rows."""
LOADS_MAX = 256
"""So many loads history names; the rows of further ones are copied: each is in every record."""
TICK_S = 0.25


@dataclass(frozen=True, slots=True)
class _Flushed:
    """The rows of one incarnation that a flush wrote, still to be put on the history of the day.

    `loads` are parts of history as they are; without other rows there is nothing `staged`.
    `sources` have the other rows. `refused`: Lance does not take them; these files have them, and
    what it refused before.
    """

    incarnation: int
    table_schema: TableSchema
    base_pin: Pin | None
    staged: StagedFiles
    loads: tuple[Load, ...]
    sources: tuple[Source, ...] = ()
    refused: tuple[Fallback, ...] = ()


class _Commits(msgspec.Struct, frozen=True):
    """The flushed commits, still to be put on the `commits` of the day, and parts joined there.

    `base_pin` is the dataset that they are put on if the record has none yet.
    """

    base_pin: Pin
    staged: StagedFiles
    joined: Sequence[Compacted]

    def put_on(self, tables: Tables, pin: Pin | None) -> Pin:
        """Join first: what is appended costs by the parts."""
        pin = commit_parts.put_on(tables, pin or self.base_pin, self.joined)
        return tables.writer.commit(pin, self.staged)


class Checkpointer:
    """See the module."""

    def __init__(
        self,
        site: Site,
        *,
        committer: Committer,
        readers: Readers,
        log: Wal,
        resident_bytes_max: int,
        require_in_place: Callable[[], None],
        work: WorkTimes,
        load_rows_min: int = LOAD_ROWS_MIN,
        commit_parts_max: int = COMMIT_PARTS_MAX,
        after: Callable[[], object] | None = None,
    ) -> None:
        """`resident_bytes_max`: flushed memtables stay in memory as a cache up to so many bytes.

        `load_rows_min`: see `load_of`. `commit_parts_max`: see `commit_parts`.

        `require_in_place` raises UnavailableError where another store is in the place of ours: it
        may have records of our epoch. `after` is called after each checkpoint and each look for
        news.
        """
        self._site = site
        self._all_tables, self._tables = site.tables, site.tables.writer
        self._manifests, self._now_us = site.manifests, site.now_us
        self._new_token = site.new_token
        self._commit_parts_max = commit_parts_max
        self._committer, self._readers, self._log = committer, readers, log
        self._epoch = committer.state.view.record.epoch
        self._resident_bytes_max, self._load_rows_min = resident_bytes_max, load_rows_min
        self._work = work
        self._after, self._require_in_place = after or (lambda: None), require_in_place
        self._lock = threading.Lock()
        self._is_ending = False
        self.fenced: FencedError | None = None

    def end(self) -> None:
        """Refuse waiting checkpoints; a running one continues."""
        self._is_ending = True

    @contextmanager
    def _turn(self, is_done: Callable[[], bool] = lambda: False) -> Generator[bool]:
        """Hold the lock; False: it was not got before the work was done by others.

        The lock is not fair: a thread that takes it again at once may keep the others from it.

        Raises:
            ClosedError: The store ended while another thread held it.
        """
        has_turn = False
        try:
            while not has_turn:
                with DeferredSignals():  # else what a handler raises could come between the two
                    has_turn = self._lock.acquire(timeout=TICK_S)
                if self._is_ending and not has_turn:
                    raise ClosedError("the store was closed meanwhile")
                if not has_turn and is_done():
                    break
            yield has_turn
        except FencedError as error:
            self.fenced = error
            raise
        finally:
            if has_turn:
                self._lock.release()

    def checkpoint(self) -> Record:
        """Flush all commits so far; return the newest record.

        Raises:
            FencedError: Another epoch owns the store.
            UnavailableError, BusyError: Nothing was lost; call again.
            ReplacedError: Another store is at the path by now, or none: it was left alone.
            PoisonedError: The log failed; reopen the store.
        """
        with self._site.held(self._committer.state.view.record):
            record = self._checkpoint()
        self._after()
        return record

    def _checkpoint(self) -> Record:
        wanted, state = self._committer.state.visible, self._committer.current
        with self._turn(lambda: state().view.record.flushed_seq >= wanted) as has_turn:
            if not has_turn:
                return state().view.record
            cross(Failpoint.FLUSH_BEFORE_PLAN)
            self._require_in_place()
            # The log goes on in place, in MARK and a segment: files that an older copy may have.
            self._manifests.require_ours(state().view.record)
            self._committer.seal()
            sealed = self._unpublished()
            is_refused = bool(self._waiting_for_lance())
            if is_refused:  # a publish whose answer was lost may have given Lance those rows
                self._refresh()
                sealed = self._committer.state.view.sealed
            if not (sealed or is_refused):
                return self._committer.state.view.record
            cross(Failpoint.FLUSH_AFTER_PLAN)
            begun_s = time.monotonic()
            record = self._written(sealed)
            if record is None:  # ours may not be durable (`_refresh`), so it frees no log
                return self._committer.state.view.record
            cross(Failpoint.FLUSH_AFTER_PUBLISH)
            self._retire(record, sealed)
            cross(Failpoint.FLUSH_AFTER_RETIRE)
            words = f"record {record.number} has the commits up to seq {record.flushed_seq}"
            self._work.done(time.monotonic() - begun_s, words)
            return record

    def _written(self, sealed: Sequence[Generation]) -> Record | None:
        """Write and publish; again if a vacuum took what was written for garbage.

        None: nothing is sealed, and Lance takes no refused rows yet.
        """
        above_us = self._committer.state.view.record.gc_horizon_us
        for _ in range(ATTEMPTS):
            begun = Begun.at(self._now_us, above_us)
            flushed = self._flush(sealed)
            if not sealed and all(item.base_pin is None for item in flushed):
                return None
            commits = self._flush_commits(sealed) if sealed else None
            cross(Failpoint.FLUSH_AFTER_FRAGMENTS)
            try:
                started_us = begun.started_us(self._now_us)
                return self._publish(sealed, flushed, commits, started_us)
            except GcHorizonError as error:
                above_us = error.gc_horizon_us
        raise BusyError(
            f"{ATTEMPTS} checkpoints were older than the gc horizon of a vacuum; try again"
        )

    def _unpublished(self) -> Sequence[Generation]:
        """Retire what an earlier checkpoint published before it failed; return what is left.

        Those rows are in history already: flushed again they would be there twice. The record's
        name may not be durable if it was its sync that failed, so a new one says the same again.
        """
        view = self._committer.state.view
        record = (self._manifests.newer_record(view.record) if view.sealed else None) or view.record
        done = [g for g in view.sealed if g.last_seq <= record.flushed_seq]
        if done and record.epoch == self._epoch:
            self._retire(self._manifests.publish(self._again, base=record), done)
        return self._committer.state.view.sealed

    def _again(self, record: Record) -> Record:
        if record.epoch != self._epoch:
            raise FencedError(self._epoch, record.epoch)
        return msgspec.structs.replace(record)

    def refresh(self) -> Record:
        """Refresh to the newest record of other processes; a stale view stays correct meanwhile."""
        with self._turn():
            self._require_in_place()
            record = self._refresh()
        self._after()
        return record

    @contextmanager
    def refreshing(self) -> Generator[None]:
        """Refresh after work of this process, also if it failed for a table: others were done."""
        try:
            yield
        except ReplacedError:
            raise
        except SiltstoneError:
            self.refresh()
            raise
        self.refresh()

    def _refresh(self) -> Record:
        """Make the newest record the view's. Generations that it holds are no longer sealed.

        Those are of a publish whose answer was lost: to flush them again would put their rows into
        history twice. Their log is kept until a record of which we know that it is durable.
        """
        view = self._committer.state.view
        record = self._manifests.newer_record(view.record)
        if record is None:
            return view.record
        if record.epoch != self._epoch:
            raise FencedError(self._epoch, record.epoch)
        self._swap(record, [g for g in view.sealed if g.last_seq <= record.flushed_seq])
        return record

    def renew(self) -> Record:
        """Refresh to the newest record and release all older ones, which vacuum may delete."""
        record = self.refresh()
        with self._turn():
            flushed = renewals(self._committer.state.view, self._readers)  # reads Lance: no lock
            self._committer.swap_view(lambda view: renewed(view, flushed))
        return record

    # flush

    def _waiting_for_lance(self, sealed: Sequence[Generation] = ()) -> set[int]:
        """Return the incarnations of living tables with rows that Lance refused."""
        view = self._committer.state.view
        catalog = _catalog_of(sealed, view)
        kept = (n for n, levels in view.levels.items() if levels.storage.fallbacks)
        return {number for number in kept if _is_living(catalog, number)}

    def _flush(self, sealed: Sequence[Generation]) -> list[_Flushed]:
        catalog = _catalog_of(sealed, self._committer.state.view)
        numbers = {number for generation in sealed for number in generation.sources}
        numbers |= self._waiting_for_lance(sealed)

        def flush(number: int) -> _Flushed:
            sources = [s for g in sealed for s in g.sources.get(number, ())]
            return self._flush_table(catalog, number, sources)

        return side_by_side(sorted(numbers), flush)

    def _flush_table(
        self, catalog: Catalog, incarnation: int, sources: Sequence[Source]
    ) -> _Flushed:
        table = catalogs.owner_of(catalog, incarnation)
        table_schema = whole_table_schema(table)  # dropped columns too: older seqs show them
        levels = self._committer.state.view.levels[incarnation]
        refused = levels.storage.fallbacks
        loads, sources = self._parted(sources, LOADS_MAX - len(levels.storage.loads))
        for source in sources:
            if isinstance(source, Memtable):
                source.settle()
        found = _Flushed(incarnation, table_schema, None, NO_FILES, loads, tuple(sources))
        if refused and not (_is_living(catalog, incarnation) and are_readable(levels)):
            return self._refused(found, refused[-1].reason)
        found = replace(found, sources=(*fallback_sources(levels, refused), *sources))
        if not found.sources:
            return found
        try:
            return self._staged(found, levels.storage)
        except OF_ONE_TABLE as error:
            return self._refused(replace(found, sources=tuple(sources)), reason_of(error))

    def _staged(self, found: _Flushed, storage: KeyedStorage) -> _Flushed:
        """Write the rows to Lance."""
        pin, table_schema, sources = storage.history, found.table_schema, found.sources
        if pin is None:
            schema = history_schema(table_schema.schema)
            pin = self._tables.create(f"{storage.folder}/.history", schema)
        else:
            pin = self._widened(pin, storage, table_schema)
        seqs = (sources[0].first_seq, sources[-1].last_seq)
        staged = self._tables.stage(pin, history_batches(sources, table_schema), seqs=seqs)
        return replace(found, base_pin=pin, staged=staged)

    def _refused(self, found: _Flushed, reason: str) -> _Flushed:
        """Write the new rows to files of ours, since Lance refuses them."""
        levels = self._committer.state.view.levels[found.incarnation]
        storage, kept = levels.storage, [*levels.storage.fallbacks]
        loads = (*storage.loads, *found.loads)
        new = [s for s in found.sources if not kept or s.first_seq > kept[-1].last_seq]
        for stretch in stretches(new, loads):
            rows = joined(kept, levels, stretch, loads)
            batches = history_batches(rows, found.table_schema)
            folder = f"{storage.folder}/{FALLBACK}/{self._new_token()}"
            schema = history_schema(found.table_schema.schema)
            pin = self._tables.write_arrow(folder, schema, batches)
            kept.append(Fallback(rows[0].first_seq, rows[-1].last_seq, pin, reason))
        _log.warning(
            "Lance refuses rows of %s; they are in a file of ours: %s", storage.folder, reason
        )
        return replace(found, base_pin=None, staged=NO_FILES, refused=tuple(kept))

    def _parted(
        self, sources: Sequence[Source], loads_max: int
    ) -> tuple[tuple[Load, ...], Sequence[Source]]:
        """Part the loads that history names as they are, at most so many, from what it gets.

        Of one commit some rows may win over others, by their order in history. A load has no place
        there, so it is alone at its seq, or copied.
        """
        loads: list[Load] = []
        others: list[Source] = []
        seqs = Counter(seq for each in sources for seq in {each.first_seq, each.last_seq})
        for source in sources:
            load = load_of(source, rows_min=self._load_rows_min)
            if load is None or len(loads) >= loads_max or seqs[load.seq] > 1:
                others.append(source)
            else:
                loads.append(load)
        return tuple(loads), others

    def _widened(self, pin: Pin, storage: KeyedStorage, table_schema: TableSchema) -> Pin:
        """History is only ever widened: a dropped column stays, under its id.

        A column of which the type was widened is written anew: the past is read back from it.
        """
        has, stored = set(storage.history_columns), self._all_tables.reader.open(pin).schema
        fields = {c.id: history_field(c) for c in table_schema.schema.columns}
        add = [field for column_id, field in fields.items() if column_id not in has]
        there = [field for column_id, field in fields.items() if column_id in has]
        retype = {f.name: f.type for f in there if widens(stored.field(f.name).type, f.type)}
        if not add and not retype:
            return pin
        return self._tables.alter(pin, rename={}, drop=[], add=add, retype=retype)

    def _flush_commits(self, sealed: Sequence[Generation]) -> _Commits:
        pin = self._committer.state.view.record.commits
        if pin is None:
            pin = self._tables.create(COMMITS_FOLDER, COMMITS_SCHEMA)
        parts = commit_parts.joined(self._all_tables, pin, self._commit_parts_max)
        batches = (generation.log.to_batch() for generation in sealed)
        seqs = (sealed[0].log.first, sealed[-1].last_seq)
        return _Commits(pin, self._tables.stage(pin, batches, seqs=seqs), parts)

    # publish

    def _publish(
        self,
        sealed: Sequence[Generation],
        flushed: list[_Flushed],
        commits: _Commits | None,
        started_us: int,
    ) -> Record:
        """Publish what was written of sealed generations, and of rows that Lance takes now."""
        planned = self._committer.state.view

        def change(record: Record) -> Record:
            if record.epoch != self._epoch:
                raise FencedError(self._epoch, record.epoch)
            # No other process flushes in this epoch: such a record is built on what we published.
            if sealed and record.flushed_seq >= sealed[-1].last_seq:
                return record
            if _has_other_refusals(record, planned, flushed):
                if sealed:
                    raise BusyError("Lance took refused rows meanwhile; call checkpoint() again")
                return record
            refuse_below_gc_horizon(record, started_us)
            view, changed = self._committer.state.view, record
            if sealed:
                last = sealed[-1]
                changed = msgspec.structs.replace(
                    record,
                    last_seq=last.last_seq,
                    flushed_seq=last.last_seq,
                    last_time_us=last.last_time_us,
                    wal_floor=last.segment_end,
                    catalog=carried(last.catalog, record),
                )
            pins = self._pins(record, flushed)
            keyed = stored_after(view, record, changed.catalog, changed.flushed_seq, pins)
            changed = msgspec.structs.replace(changed, keyed=keyed)
            if commits is not None:
                pin = commits.put_on(self._all_tables, record.commits)
                changed = msgspec.structs.replace(changed, commits=pin)
            cross(Failpoint.FLUSH_BEFORE_PUBLISH)
            return changed

        return self._manifests.publish(change, base=planned.record)

    def _pins(self, record: Record, flushed: list[_Flushed]) -> dict[int, Histories]:
        """Put the flushed rows on each history as `record` has it.

        An item of `flushed` that Lance refuses now is replaced: another try has its file.
        """
        stored = {storage.incarnation: storage for storage in record.keyed}

        def put(place: int) -> Histories:
            item = flushed[place]
            try:
                return self._histories(item, stored.get(item.incarnation))
            except OF_ONE_TABLE as error:
                self._discard(item.staged)
                item = flushed[place] = self._refused(item, reason_of(error))
                return self._histories(item, None)

        found = side_by_side(range(len(flushed)), put)
        return {item.incarnation: each for item, each in zip(flushed, found, strict=True)}

    def _discard(self, staged: StagedFiles) -> None:
        """Delete rows that no pin names: each checkpoint tries them again, and would leave some."""
        for file in staged.files:
            with suppress(OSError):  # then it is vacuum's
                self._site.files.unlink(self._site.root / file.path)

    def _histories(self, item: _Flushed, old: KeyedStorage | None) -> Histories:
        """Put the flushed rows of one table on its history as it is now."""
        pin, columns = item.base_pin, [c.id for c in item.table_schema.schema.columns]
        if pin is None:
            return Histories(None, (), item.loads, item.refused)
        if old is not None and old.history is not None:
            pin = self._widened(old.history, old, item.table_schema)
            columns = [*old.history_columns, *columns]
        pin = self._tables.commit(pin, item.staged)
        return Histories(pin, tuple(dict.fromkeys(columns)), item.loads, ())

    # retire

    def _retire(self, record: Record, sealed: Sequence[Generation]) -> None:
        self._swap(record, sealed)
        self._manifests.require_ours(record)  # the segments of a copy have the same names
        self._log.retire(SegmentNumber(record.wal_floor))

    def _swap(self, record: Record, flushed: Sequence[Generation]) -> None:
        lease = self._manifests.lease(record.number)
        if lease is None:  # vacuumed already: what is newer holds all that it held
            record, lease = self._manifests.lease_newest()

        state = self._committer.state
        bases = folded_bases(state.view, record, self._readers)
        carry_images(state, self._readers)

        def change(view: View) -> View:
            return refreshed(
                view,
                record,
                lease,
                flushed,
                self._readers,
                bases,
                resident_bytes_max=self._resident_bytes_max,
            )

        ahead = change(state.view)  # it holds what the next one under the lock would read again
        ready = made_ready(state, ahead, self._readers)
        self._committer.swap_view(lambda view: ready.put_into(change(view)))
        self._committer.free = (), 0  # writers ask again: a table may take no more rows now


def _catalog_of(sealed: Sequence[Generation], view: View) -> Catalog:
    """Return the catalog after sealed generations; without any, that of the record."""
    return sealed[-1].catalog if sealed else view.record.catalog


def _has_other_refusals(record: Record, planned: View, flushed: Sequence[_Flushed]) -> bool:
    """Say whether Lance refuses other rows by now than a flush had before it: then it took some."""
    found = {storage.incarnation: storage.fallbacks for storage in record.keyed}
    for number in (each.incarnation for each in flushed):
        levels = planned.levels.get(number)  # None: its past was trimmed meanwhile
        if levels is not None and found.get(number, levels.storage.fallbacks) != (
            levels.storage.fallbacks
        ):
            return True
    return False


def _is_living(catalog: Catalog, incarnation: int) -> bool:
    """Say whether an incarnation is what its table has now."""
    table = catalogs.owner_if_known(catalog, incarnation)
    if table is None or not catalogs.is_alive(table):
        return False
    return catalogs.incarnation_of(table).id == incarnation
