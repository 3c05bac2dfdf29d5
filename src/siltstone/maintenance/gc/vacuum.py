"""Vacuum: raises the retention's floor and deletes unused files.

    record n+1 with the new oldest_seq ─▶ FLOOR, synced ─▶ look for leases on records that it gives
    up, below it or thinned ─▶ record n+2 without the unneeded past ─▶ unlink these records,
    exclusively locked ─▶ sync
    ─▶ list the files ─▶ publish a gc horizon: before the grace period, and before all running jobs
    ─▶ gather the files that all records and the live catalog need ─▶ delete the rest

On a full disk it releases the store's reserve and starts again (`storage/wal/reserve.py`).

A crash between any two steps leaves too many files, never too few. A record that FLOOR gave up
stays, complete, while it is leased or serves a tag. Kept records keep their files, too, so trimmed
history frees its space when FLOOR gives up the last record from before the trim.

Work that was begun before the gc horizon starts again when it publishes (`storage/tables/jobs.py`),
so a process that slept notices that its files are deleted; work that was published before the
horizon is found by the gathering.

Any process may run it. `LiveStore` supplies the knowledge of an owner (frames that are in no record
yet); next to a live owner it comes from the owner's log. A commit of a frame with staged files
holds a job record as old as the files, then compares them with the gc horizon, and releases the
record when the frame is durable. Vacuum publishes the gc horizon, then looks for held records, and
reads the log after that. So it sees the hold, or the frame, or the commit is refused.

Another store may be put at the path meanwhile. So each batch of deletes begins with a look that the
store is still that of a record which this vacuum published (`ManifestStore.require_ours`).

Lock: none; two vacuums exclude each other by FLOOR.lock and each record's flock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import msgspec
import numpy as np

from siltstone.arguments import flag_of
from siltstone.engine.catalog import catalog as catalogs
from siltstone.errors import BusyError, SiltstoneError, UnavailableError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats.manifest import (
    KeyedStorage,
    Pin,
    Record,
    Tag,
    pins_of,
    versions_of,
)
from siltstone.formats.schema import SEQ_COLUMN
from siltstone.maintenance import retention
from siltstone.maintenance.gc.floor_planner import FloorPlanner
from siltstone.maintenance.gc.live_store import LiveStore, attached
from siltstone.maintenance.gc.sweep import (
    DEAD,
    Ages,
    Removed,
    Sweep,
    distinct,
    go_on,
    homes,
    named_by_path,
    published,
    storages,
)
from siltstone.maintenance.merge.merge import shown_pins
from siltstone.maintenance.retention import Islands
from siltstone.maintenance.thinning import BOUNDS, Bounds
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.files.files import refusals
from siltstone.storage.files.locks import is_taken, releasing
from siltstone.storage.manifest.floor import Floor
from siltstone.storage.manifest.manifest_store import existing, random_token
from siltstone.storage.site import Site, held
from siltstone.storage.tables.inventories import Inventories
from siltstone.storage.tables.jobs import FILE_TICK_S, SeenJob
from siltstone.storage.tables.values import POSITION
from siltstone.storage.wal.reserve import Reserve, is_full
from siltstone.telemetry.works import WorkTimes

GRACE_S = 86_400.0
CENSUSES_MAX = 16
PROMOTIONS_MAX = 8
CONDEMNED = "the record of a job that died before the grace period"
THINNED = "an older record serves its seqs"


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """The deleted files of a vacuum, or of a preview, with sizes and reasons; and spared ones.

    Examples:
        >>> db.vacuum(dry_run=True).files
        ()
    """

    is_dry_run: bool
    floor: int
    oldest_seq: int
    files: tuple[Removed, ...]
    spared: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of all files."""
        return sum(file.nbytes for file in self.files)

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain values."""
        return {**asdict(self), "nbytes": self.nbytes}

    def __str__(self) -> str:
        verb = "would delete" if self.is_dry_run else "deleted"
        head = (
            f"{verb} {len(self.files)} files, {self.nbytes} bytes;"
            f" seqs from {self.oldest_seq} on are readable"
        )
        lines = [f"  {file.path}  {file.nbytes}  {file.why}" for file in self.files]
        return "\n".join([head, *lines, *(f"  spared: {reason}" for reason in self.spared)])


class _Census(msgspec.Struct, frozen=True):
    """Who needs which record: those that FLOOR keeps, others leased, and the tags' islands."""

    kept: Sequence[Record]
    leased: Sequence[Record]
    islands: Islands
    dead: Sequence[Record]
    tags: Sequence[Tag]

    @property
    def stay(self) -> list[Record]:
        return [*self.kept, *self.leased, *(record for record, _ in self.islands.serving)]


class Vacuum:
    """See the module."""

    def __init__(
        self,
        site: Site,
        live: LiveStore,
        *,
        retention_s: float,
        reserve: Reserve,
        bounds: Bounds = BOUNDS,
        parts: PartCache | None = None,
        work: WorkTimes | None = None,
    ) -> None:
        """`parts` has rows of parts of bases, which go with them."""
        self.site = site
        self._files, self._root, self._now_us = site.files, site.root, site.now_us
        self._manifests, self._tables, self._jobs = site.manifests, site.tables, site.jobs
        self._live, self._reserve, self._parts = live, reserve, parts
        self._retention_s, self._bounds = retention_s, bounds
        self._work = work or WorkTimes("vacuum")

    @held
    def run(
        self,
        *,
        dry_run: bool = False,
        grace_s: float = GRACE_S,
        step: Callable[[], object] = go_on,
    ) -> Vacuumed:
        """Vacuum; with `dry_run` only list the files (without those that a trim frees later).

        `grace_s`: vacuum spares unpublished files for this time, which must be longer than any
        transaction, load or merge. `step` is called between any two steps; what it raises ends the
        vacuum there.

        Raises:
            UnavailableError, BusyError: Only garbage was deleted; call again.
            ReplacedError: Another store is at the path by now, or none; only garbage was deleted.
            ClosedError: The store was closed meanwhile; only garbage was deleted.
            CorruptionError: A needed record or pin is damaged; its files were spared.
            RequestError: `dry_run` is neither True nor False.
        """
        flag_of("dry_run", dry_run)
        with refusals(f"vacuum of {self._root}"):
            if dry_run:
                return self._preview(grace_s)
            work = partial(self._reserve.lend, partial(self._run, grace_s, step))
            return self._work.run(
                work, lambda done: f"{len(done.files)} files of {done.nbytes} bytes were deleted"
            )

    @held
    def set_aside(
        self, take: Callable[[Sequence[Removed]], object], *, grace_s: float = GRACE_S
    ) -> tuple[Removed, ...]:
        """Return the unpublished files, for a repair that moves them aside; delete nothing.

        Raises:
            UnavailableError, BusyError, CorruptionError: As `run`.
        """
        with refusals(f"vacuum of {self._root}"):
            garbage, _ = self._condemned(Sweep(self._files, self._root), (), grace_s)
            orphans = tuple(file for file in garbage if file.is_orphan)
            take(orphans)
            return orphans

    def _run(self, grace_s: float, step: Callable[[], object], is_short: bool) -> Vacuumed:
        """Vacuum; `is_short` of space it leaves the past that it cannot trim to the next one."""
        cross(Failpoint.VACUUM_BEFORE_PLAN)
        self.forget_lapsed_tags()
        step()
        newest, floor, oldest_seq = self._raise_floor()
        cross(Failpoint.VACUUM_AFTER_FLOOR)
        step()
        self._live.renew()
        census = self._settled(floor, oldest_seq)
        try:
            trimmed, built_on = self._trim(census, newest, oldest_seq)
        except SiltstoneError as error:
            if not (is_short and is_full(error)):
                raise
            trimmed, built_on = newest, None  # what is deleted now makes space for that
        if built_on == floor.number:
            seen, floor = floor, Floor(trimmed.number)  # as of the same seqs, and with less past
            self._manifests.require_ours(trimmed)
            self._manifests.replace_floor(seen, floor)  # else another vacuum raised it
        cross(Failpoint.VACUUM_AFTER_TRIM)
        step()
        self._live.renew()
        census = self._settled(floor, oldest_seq)
        self._manifests.require_ours(trimmed)
        dead = [record for record in census.dead if self._unlink(record)]
        self._manifests.sync()
        cross(Failpoint.VACUUM_AFTER_UNLINK)
        garbage = self._sweep(dead, grace_s, trimmed, step)
        cross(Failpoint.VACUUM_AFTER_DELETE)
        return Vacuumed(False, floor.number, newest.oldest_seq, garbage, _spared(census))

    def forget_lapsed_tags(self) -> None:
        """Remove the tags that have lapsed.

        A tag is part of the catalog: it goes by a commit, and only then does its past. So one that
        lapses after this keeps its past until the next vacuum: it may be set again.
        """
        for tag in self._tags(are_lapsed=True):
            self._live.forget(tag)

    def _tags(self, *, are_lapsed: bool) -> tuple[Tag, ...]:
        now_us = self._now_us()
        tags = self._live.view().catalog.tags
        return tuple(tag for tag in tags if catalogs.has_lapsed(tag, now_us) == are_lapsed)

    # the floor

    def _raise_floor(self) -> tuple[Record, Floor, int]:
        """Publish the oldest readable seq, then write FLOOR.

        Return the newest record, FLOOR, and the flushed_seq of the oldest record that it keeps. The
        record may say a higher one, of a vacuum that has not written FLOOR yet, or died before: who
        leases a record that FLOOR keeps reads what the log above that record names.
        """
        newest: Record | None = None
        for _ in range(CENSUSES_MAX):
            newest, lease = self._manifests.lease_newest(newest)
            with lease:
                seen, floor, oldest_seq = self._planned_floor()
                cross(Failpoint.VACUUM_AFTER_PLAN)
                newest, built_on = self._publish(_for_floor(floor, oldest_seq), newest)
            cross(Failpoint.VACUUM_AFTER_PUBLISH)
            if built_on == floor.number:  # it is the same record, but for what was just said
                floor = Floor(newest.number)
            self._manifests.require_ours(newest)
            if self._manifests.replace_floor(seen, floor):
                return newest, floor, oldest_seq
        raise BusyError(f"{self._root}: FLOOR was raised {CENSUSES_MAX} times meanwhile; try again")

    def _planned_floor(self) -> tuple[Floor, Floor, int]:
        """Return FLOOR, the next one, and the oldest readable seq by that."""
        seen = self._manifests.kept()
        records = list(existing(self._manifests, self._manifests.numbers()))
        files, now_us = self._tables.reader.files, self._now_us()
        planner = FloorPlanner(files, now_us, self._retention_s, self._bounds)
        floor = planner.plan(seen, records, self._tags(are_lapsed=False))
        oldest = next(record for record in records if record.number >= floor.number)
        return seen, floor, oldest.flushed_seq

    def _publish(
        self, change: Callable[[Record], Record], base: Record
    ) -> tuple[Record, int | None]:
        """Publish; return the record and the number of the one below it (None: no change)."""
        built_on: list[int | None] = []

        def noted(record: Record) -> Record:
            changed = change(record)
            built_on[:] = [None if changed is record else record.number]
            return changed

        published = self._manifests.publish(noted, base=base)
        return published, built_on[0]

    def _records(self) -> list[Record]:
        return list(existing(self._manifests, self._manifests.numbers(below_floor=True)))

    def _census(self, floor: Floor, oldest_seq: int, tags: Sequence[Tag]) -> _Census:
        records = self._records()
        below_seqs = (tag.seq for tag in tags if tag.seq < oldest_seq)
        islands = retention.islands_of(records, below_seqs)
        tagged = {record.number for record, _ in islands.serving}
        below = [r for r in records if not floor.keeps(r.number) and r.number not in tagged]
        leased = [record for record in below if self._is_leased(record.number)]
        held = {record.number for record in leased}
        kept = [record for record in records if floor.keeps(record.number)]
        dead = [record for record in below if record.number not in held]
        return _Census(kept, leased, islands, dead, tags)

    def _settled(self, floor: Floor, oldest_seq: int) -> _Census:
        """Return a census whose tags are those after it.

        Who sets a tag holds a lease until its commit is done: one that was let go when we asked
        has its tag in the catalog by now, and on what FLOOR gave up no lease begins.
        """
        for _ in range(CENSUSES_MAX):
            tags = self._live.view().catalog.tags
            census = self._census(floor, oldest_seq, tags)
            if self._live.view().catalog.tags == tags:
                return census
        raise BusyError(f"{self._root}: tags were set {CENSUSES_MAX} times meanwhile; try again")

    def _is_leased(self, number: int) -> bool:
        return is_taken(self._manifests.try_exclusive(number))

    # the past

    def _trim(self, census: _Census, newest: Record, oldest_seq: int) -> tuple[Record, int | None]:
        """Publish the newest record without the unneeded past."""
        bound = min(oldest_seq, *(record.flushed_seq for record in (*census.leased, newest)))
        return self._publish(lambda record: self._trimmed(record, census, bound), newest)

    def _trimmed(self, record: Record, census: _Census, bound: int) -> Record:
        needs = retention.needs_of(
            [*census.kept, *census.leased, record],
            census.islands,
            bound=bound,
            tags=census.tags,
            newest=record,
        )
        found = retention.trimmed(record, needs)
        keyed = tuple(self._without_old_rows(storage) for storage in found.keyed)
        lowest = min([needs.bound, *needs.tags])
        commits = record.commits and self._without(record.commits, "seq", lowest - 1)
        if found is record and keyed == record.keyed and commits == record.commits:
            return record
        return msgspec.structs.replace(found, keyed=keyed, commits=commits)

    def _without_old_rows(self, storage: KeyedStorage) -> KeyedStorage:
        if storage.history is None or not storage.history_from:
            return storage
        pin = self._without(storage.history, SEQ_COLUMN, storage.history_from)
        return msgspec.structs.replace(storage, history=pin)

    def _without(self, pin: Pin, column: str, upto: int) -> Pin:
        """Drop the data files whose rows all have a seq <= `upto`.

        Only whole files: the other rows of a file would move behind those of later seqs.
        """
        spans = [file.seqs for file in self._tables.reader.files(pin) if file.seqs is not None]
        below = [high for _, high in spans if high <= upto]
        if not below:
            return pin
        last = max(below)
        if any(low <= last < high for low, high in spans):
            return pin
        opened = self._tables.reader.open(pin)
        dropped = [np.zeros(0, np.int64)]
        for batch in opened.scan([column], seqs=(-1, last), positions=True):
            is_old = batch.column(column).to_numpy() <= last
            dropped.append(batch.column(POSITION).to_numpy()[is_old])
        return self._tables.rewriter.rewrite(pin, drop=np.concatenate(dropped), batches=())

    # deleting

    def _unlink(self, record: Record) -> bool:
        """Unlink a record that FLOOR gave up unless somebody took a lease meanwhile."""
        lock = self._manifests.try_exclusive(record.number)
        if lock is None:
            return False
        with releasing(lock):
            self._files.unlink(self._manifests.path(record.number))
        return True

    def _sweep(
        self,
        dead: Sequence[Record],
        grace_s: float,
        known: Record,
        step: Callable[[], object],
    ) -> tuple[Removed, ...]:
        """Delete what nothing needs, for as long as the store is the one of the record `known`."""
        require_ours = partial(self._manifests.require_ours, known)
        sweep = Sweep(self._files, self._root, step)
        garbage, gc_horizon_us = self._condemned(sweep, dead, grace_s)
        records = self._records()
        cross(Failpoint.VACUUM_BEFORE_DELETE)
        require_ours()
        self._promote(records, garbage)
        sweep.delete(garbage, storages(self._live.view().catalog), require_ours)
        if self._parts is not None and garbage:
            self._parts.drop_parts(file.path for file in garbage)
        require_ours()
        jobs = [file for job, file in self._dead_jobs(gc_horizon_us) if self._jobs.remove(job)]
        return (*garbage, *jobs)

    def _condemned(
        self, sweep: Sweep, dead: Sequence[Record], grace_s: float
    ) -> tuple[list[Removed], int]:
        """Return what may go, and up to which time unpublished files may go."""
        gc_horizon_us = self._gc_horizon_us(grace_s)
        limit_s = self._limit_s(gc_horizon_us, grace_s)
        garbage = self._garbage(sweep, self._records(), dead, limit_s, grace_s)
        if any(file.why != DEAD for file in garbage):
            said_us = self._raise_gc_horizon(gc_horizon_us)
            cross(Failpoint.VACUUM_AFTER_GC_HORIZON)
            if self._held(said_us) < said_us:
                gc_horizon_us = 0  # somebody is at work who may not have heard: nothing of it now
            limit_s = self._limit_s(gc_horizon_us, grace_s)
            self._live.renew()
            garbage = self._garbage(sweep, self._records(), dead, limit_s, grace_s)
        return garbage, gc_horizon_us

    def _gc_horizon_us(self, grace_s: float) -> int:
        """Return before when work must have been begun to be dead: no running job's is.

        0 if all that may go next to running work is said: a higher horizon would take that, too.
        """
        limit_us = self._now_us() - int(grace_s * 1e6)
        held_us = self._held(limit_us)
        is_said = held_us < limit_us and held_us <= self._manifests.newest().gc_horizon_us
        return 0 if is_said else held_us

    def _held(self, limit_us: int) -> int:
        """Return `limit_us`, or when the oldest work was begun that somebody is at now."""
        begun = (_begun_us(seen) for seen in self._jobs.list() if seen.is_running)
        return max(0, min([limit_us, *begun]))

    def _raise_gc_horizon(self, gc_horizon_us: int) -> int:
        """Publish what is condemned, more than ever before; return it.

        Also when a clock that was ahead said more: what began upon that record must hear of us.
        """

        def change(record: Record) -> Record:
            said_us = max(gc_horizon_us, record.gc_horizon_us + 1)
            return msgspec.structs.replace(record, gc_horizon_us=said_us)

        return self._publish(change, self._manifests.newest())[0].gc_horizon_us

    def _dead_jobs(self, gc_horizon_us: int) -> Iterator[tuple[str, Removed]]:
        """Yield the ids of dead jobs, with their records' files."""
        for seen in self._jobs.list():
            if not seen.is_running and _begun_us(seen) < gc_horizon_us:
                yield seen.id, Removed(f"jobs/{seen.id}.json", seen.nbytes, CONDEMNED)

    def _garbage(
        self,
        sweep: Sweep,
        records: Sequence[Record],
        dead: Sequence[Record],
        limit_s: float,
        grace_s: float,
    ) -> list[Removed]:
        catalog = self._live.view().catalog
        pins = distinct(pin for record in records for pin in pins_of(record))
        pins |= distinct(versions_of(catalog))
        pins |= distinct(attached(self._live.view()))
        gone = distinct(pin for record in dead for pin in pins_of(record))
        gone = {name: pin for name, pin in gone.items() if name not in pins}
        reachable = self._tables.paths.needed(pins.values())
        inventories = Inventories(self._root, self._files, random_token)
        doomed = published(inventories, gone) - reachable
        ages = self._ages(records, limit_s, grace_s)
        folders = {pin.folder for pin in pins.values()} | homes(catalog)
        by_path = named_by_path(self._tables.external, sorted(folders))
        return sweep.garbage(reachable, doomed, ages, by_path)

    def _limit_s(self, gc_horizon_us: int, grace_s: float) -> float:
        """Return before when an unpublished file must have been written to go.

        Looked at before what is needed is gathered: who ends after this may have published what
        is not gathered, and who begins after it has no file on the list.
        """
        # Without a grace no other process is at work; nor is work of use that the horizon condemns.
        is_exact = not grace_s and not any(
            seen.is_running or _begun_us(seen) >= gc_horizon_us for seen in self._jobs.list()
        )
        # The clock of files may be a tick behind.
        return gc_horizon_us / 1e6 - (0 if is_exact else FILE_TICK_S)

    def _ages(self, records: Sequence[Record], limit_s: float, grace_s: float) -> Ages:
        oldest_view = min(
            record.last_time_us
            for record in records
            if record is records[-1] or self._is_leased(record.number)
        )
        return Ages(limit_s, attached=min(limit_s, oldest_view / 1e6 - grace_s))

    def _promote(self, records: Sequence[Record], garbage: Sequence[Removed]) -> None:
        """Take the public names away from the manifests that are about to go."""
        for folder, pins in shown_pins(records).items():
            public = self._root / folder / "_versions"
            is_hit = any(file.path.startswith(f"{folder}/_siltstone/") for file in garbage)
            if is_hit and self._files.is_dir(public) and self._files.list(public):
                self._promote_again(pins)

    def _promote_again(self, pins: Sequence[Pin]) -> None:
        """Promote; a merge that promotes at once takes away what it does not know of."""
        for _ in range(PROMOTIONS_MAX - 1):
            with contextlib.suppress(UnavailableError):
                return self._tables.names.promote(pins, pins[-1])
        return self._tables.names.promote(pins, pins[-1])

    # looking only

    def _preview(self, grace_s: float) -> Vacuumed:
        newest = self._manifests.newest()
        _, floor, oldest_seq = self._planned_floor()
        seq = max(newest.oldest_seq, oldest_seq)
        census = self._census(floor, seq, self._tags(are_lapsed=False))
        sweep = Sweep(self._files, self._root)
        gc_horizon_us = self._gc_horizon_us(grace_s)
        limit_s = self._limit_s(gc_horizon_us, grace_s)
        garbage = self._garbage(sweep, census.stay, census.dead, limit_s, grace_s)
        garbage += [file for _, file in self._dead_jobs(gc_horizon_us)]
        records = [
            Removed(
                str(path.relative_to(self._root)),
                self._files.size(path),
                "below FLOOR" if record.number < floor.number else THINNED,
            )
            for record in census.dead
            for path in (self._manifests.path(record.number),)
        ]
        return Vacuumed(True, floor.number, seq, (*records, *garbage), _spared(census))


def _for_floor(floor: Floor, oldest_seq: int) -> Callable[[Record], Record]:
    """Return the change that says what FLOOR is about to give up."""

    def change(record: Record) -> Record:
        cross(Failpoint.VACUUM_BEFORE_PUBLISH)
        if record.oldest_seq >= oldest_seq and record.may_be_thinned >= bool(floor.upto):
            return record
        return msgspec.structs.replace(
            record,
            oldest_seq=max(record.oldest_seq, oldest_seq),
            may_be_thinned=bool(floor.upto) or record.may_be_thinned,
        )

    return change


def _begun_us(seen: SeenJob) -> int:
    return seen.changed_us if seen.job is None else seen.job.started_us


def _spared(census: _Census) -> tuple[str, ...]:
    return (
        *(f"record {record.number}: leased" for record in census.leased),
        *(
            f"record {record.number}: serves the tag at seq {seq}"
            for record, seq in census.islands.serving
        ),
    )
