"""Repair: repairs provable damage, moves damaged files aside, and names the other damage.

    plan (reads only) ─▶ own the store for a moment ─▶ plan again ─▶ FLOOR ─▶ replace damaged
    records by copies of a proven one, and move them into quarantine ─▶ publish the proven record
    once more

The proofs:

    older record   all its files are intact, and the log is intact from its `wal_floor` to the end:
                   record and log together hold every commit; the other contents of newer records
                   (merges, optimizes, new files) were maintenance, which is repeated
    index          it changes no result: it is removed from base, and rebuilt
    history        base is the fold of a complete history: it starts again, empty, at seq 0
    FLOOR          all records from some number to the newest exist: FLOOR was not below it
    epoch, format  it was published before the log had a segment, or a frame, of it

Repair deletes nothing. It never frees the number of a record: a copy of the record that serves
instead replaces it, so a process that slept cannot publish under the number. Each step is visible
in the store, so the next repair completes an interrupted one, and a further repair has nothing to
do. No other process may own the store meanwhile, except for steps on records of dead jobs; others
may read and maintain it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

import msgspec

from siltstone.arguments import flag_of
from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of, whole_table_schema
from siltstone.errors import CorruptionError, ReplacedError, SiltstoneError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats import manifest
from siltstone.formats.manifest import Incarnation, KeyedStorage, Load, Pin, Record, versions_of
from siltstone.maintenance.backup.backup import Progress
from siltstone.maintenance.index.indexer import Indexer
from siltstone.maintenance.repair.integrity import relative
from siltstone.maintenance.repair.quarantine import Item, Quarantine
from siltstone.maintenance.repair.repair_plan import (
    Planner,
    RecordCopy,
    Repaired,
    RepairPlan,
    readable,
)
from siltstone.maintenance.repair.verify import ERROR, Verifier
from siltstone.storage.cache.part_cache import PartCache
from siltstone.storage.files.files import refusals
from siltstone.storage.files.place import in_place, require_in_place
from siltstone.storage.manifest.floor import text_of
from siltstone.storage.manifest.ownership import own
from siltstone.storage.site import Site
from siltstone.storage.tables import base_numbers
from siltstone.storage.tables.kept_names import unite
from siltstone.telemetry.notices import NoticeLog
from siltstone.units import require

_log = NoticeLog(__name__)


class Repairer:
    """See the module."""

    def __init__(
        self, site: Site, verifier: Verifier, indexer: Indexer, parts: PartCache | None = None
    ) -> None:
        """`parts` has copies of rows, which may be as damaged as the rows were."""
        self._parts = parts
        self._site, self._files, self._root = site, site.files, site.root
        self._manifests, self._tables = site.manifests, site.tables
        self._verifier, self._indexer, self._quarantine = verifier, indexer, Quarantine(site)

    def run(
        self, *, dry_run: bool = True, deep: bool = False, on_progress: Progress | None = None
    ) -> Repaired:
        """Repair the store; by default only list the steps.

        Args:
            dry_run: Change nothing.
            deep: Check every byte and every row, as a deep verification.
            on_progress: As in `Verifier.run`.

        Raises:
            OwnedError: There is damage to repair, and a process owns the store: close it there.
            UnavailableError, BusyError: The file system refuses; run it again.
            ReplacedError: Another store is at the path by now, or none: it was left alone.
            RequestError: `dry_run` is neither True nor False.
        """
        flag_of("dry_run", dry_run)
        with refusals(f"repair of {self._root}"), in_place(self._files, self._root):
            found = self._verifier.run(deep=deep, on_progress=on_progress)
            plan = Planner(self._site, deep=deep).run()
            folder, past = "", ()
            if plan.needs_owner and not dry_run:
                plan, folder = self._owned(deep=deep)
                past = self._verifier.past()  # what read the past may be damaged no more, or gone
            self._require_ours(plan)
            if not dry_run:
                folder = self._quarantine.take(plan.dead) or folder
                if self._parts is not None:
                    self._parts.drop_store()
        errors = (finding for finding in found.findings if finding.severity == ERROR)
        left = [each for each in errors if relative(self._root, each.path) not in plan.cured]
        left += [each for each in past if each not in left]
        return Repaired(dry_run, tuple(plan.steps), tuple(left), folder)

    def _owned(self, *, deep: bool) -> tuple[RepairPlan, str]:
        ownership = own(self._files, self._root)
        try:
            plan = Planner(self._site, deep=deep).run()
            cross(Failpoint.REPAIR_AFTER_PLAN)
            folder = self._carry_out(plan)
            if plan.bases.unindexed:
                self._rebuild()
            return plan, folder
        finally:
            ownership.release()

    def _require_ours(self, plan: RepairPlan) -> None:
        """Check, before a batch of changes, that the store is the one that they were planned for.

        Raises:
            ReplacedError: The directory was moved or replaced, or its contents were.
        """
        require_in_place(self._files, self._root)
        newest = max(self._manifests.numbers(below_floor=True), default=0)
        if newest < plan.newest:
            why = f"its newest record is {newest}, and was {plan.newest}"
            raise ReplacedError(self._root, why)

    def _rebuild(self) -> None:
        try:
            self._indexer.catch_up()
        except SiltstoneError as error:  # no answer needs them, and the next optimize builds them
            _log.warning("the damaged indexes are not rebuilt yet: %s", error)

    # carrying out

    def _carry_out(self, plan: RepairPlan) -> str:
        self._require_ours(plan)
        if plan.numbers:  # before anything of ours gets one
            self._files.replace(self._root / base_numbers.NAME, plan.numbers)
        folder = self._take_floor(plan)
        cross(Failpoint.REPAIR_AFTER_FLOOR)
        self._require_ours(plan)
        folder = self._quarantine.take(plan.items) or folder
        for path, data in plan.lost.items():
            self._files.replace(self._root / path, data)
        for dataset in sorted(plan.united):  # a crash before it is mended by the next opening
            unite(self._files, self._root, dataset)
        cross(Failpoint.REPAIR_BEFORE_PUBLISH)
        if plan.base is not None:
            broken = plan.bases.broken
            fresh = {each.incarnation: self._begun_again(plan.base, each) for each in broken}
            spared = self._without_indexes(plan.bases.unindexed, plan.rotten)
            fresh |= {n: self._covered(plan.base, storage) for n, storage in spared.items()}
            base = self._without_runs(plan.base, plan.rotten)
            base = msgspec.structs.replace(base, number=plan.top)
            self._manifests.publish(
                lambda record: _changed(record, fresh, plan.epoch), base=base, attempts=1
            )
        cross(Failpoint.REPAIR_AFTER_PUBLISH)
        self._require_ours(plan)
        late = [self._copied(copy, plan.rotten) for copy in plan.copies]
        return self._quarantine.take([*late, *plan.late]) or folder

    def _copied(self, copy: RecordCopy, rotten: Collection[str]) -> Item:
        """Return the step that puts a copy of an older record in its place."""
        number = copy.record.number
        fresh = {each.incarnation: _without_base(each) for each in copy.bases.broken}
        fresh |= self._without_indexes(copy.bases.unindexed, rotten)
        changed = _changed(self._without_runs(copy.record, rotten), fresh, 0)
        path = relative(self._root, self._manifests.path(number))
        return Item(path, copy.wrong, manifest.encode(changed))

    def _without_indexes(
        self, storages: Sequence[KeyedStorage], rotten: Collection[str]
    ) -> dict[int, KeyedStorage]:
        """Return storages whose bases do without the segments that are rotten."""
        found: dict[int, KeyedStorage] = {}
        for storage in storages:
            segments = sorted(each for each in rotten if "/" not in each)
            pin, spare = storage.base, self._tables.keys.without
            if pin is not None:
                version, put = pin.version, self._tables.indexer.put
                # It has the same rows: of several records that do without it, each keeps its own.
                pin = self._tables.writer.renumbered(put(spare(pin, rotten), (), segments), version)
            loads = [Load(load.seq, spare(load.pin, rotten)) for load in storage.loads]
            changed = msgspec.structs.replace(storage, base=pin)
            found[storage.incarnation] = changed.with_loads(loads)
        return found

    def _covered(self, record: Record, storage: KeyedStorage) -> KeyedStorage:
        """Return a storage whose base, and whose loads, have key runs for all parts."""
        table = catalogs.owner_of(record.catalog, storage.incarnation)
        cover = self._tables.keys.cover
        codec = whole_table_schema(table).history_codec
        loads = [Load(load.seq, cover(load.pin, codec)) for load in storage.loads]
        storage = storage.with_loads(loads)
        if storage.base is None:
            return storage
        codec = table_schema_of(catalogs.schema_by_id(table, storage.base_schema)).codec
        return msgspec.structs.replace(storage, base=cover(storage.base, codec, in_order=True))

    def _without_runs(self, record: Record, rotten: Collection[str]) -> Record:
        """Return a record whose bulk loads do without the key runs that are rotten."""
        named = {run.path for pin in versions_of(record.catalog) for run in pin.runs}
        if named.isdisjoint(rotten):
            return record
        tables = [
            msgspec.structs.replace(
                table, incarnations=tuple(self._spared(step, rotten) for step in table.incarnations)
            )
            for table in record.catalog.tables
        ]
        catalog = msgspec.structs.replace(record.catalog, tables=tuple(tables))
        return msgspec.structs.replace(record, catalog=catalog)

    def _spared(self, step: Incarnation, rotten: Collection[str]) -> Incarnation:
        spare, replace = self._tables.keys.without, msgspec.structs.replace
        versions = tuple(replace(v, pin=spare(v.pin, rotten)) for v in step.versions)
        return replace(step, versions=versions)

    def _begun_again(self, record: Record, storage: KeyedStorage) -> KeyedStorage:
        """Return a storage whose base is empty, of a version above all others in its folder.

        The base as of seq 0 is just that. Without a version above them, readers of the plain path
        would take an older one for the newest.
        """
        table = catalogs.owner_of(record.catalog, storage.incarnation)
        table_schema = table_schema_of(catalogs.schema_by_id(table, storage.base_schema))
        for pin in self._bases(storage.incarnation):
            with contextlib.suppress(CorruptionError):
                empty = self._tables.writer.overwrite(pin, table_schema.arrow, ())
                return msgspec.structs.replace(storage, base=empty, merged_seq=0)
        return _without_base(storage)

    def _bases(self, incarnation: int) -> list[Pin]:
        """Return the bases that an incarnation ever had, as far as records know, newest first."""
        numbers = self._manifests.numbers(below_floor=True)
        pins = {
            storage.base.path: storage.base
            for _, record in readable(self._manifests, numbers)
            for storage in record.keyed
            if storage.incarnation == incarnation and storage.base is not None
        }
        return sorted(pins.values(), key=lambda pin: -pin.version)

    def _take_floor(self, plan: RepairPlan) -> str:
        if plan.floor is None:
            return ""
        path = self._manifests.folder / "FLOOR"
        number = plan.floor.number
        there = self._files.exists(self._manifests.path(number))
        require(there, f"FLOOR {number} has no record")
        text = text_of(plan.floor)
        if not self._files.exists(path):
            self._files.replace(path, text)
            return ""
        item = Item(relative(self._root, path), "it cannot be read", text)
        return self._quarantine.take([item])


def _changed(record: Record, fresh: dict[int, KeyedStorage], epoch: int) -> Record:
    keyed = tuple(fresh.get(storage.incarnation, storage) for storage in record.keyed)
    return msgspec.structs.replace(record, keyed=keyed, epoch=max(epoch, record.epoch))


def _without_base(storage: KeyedStorage) -> KeyedStorage:
    return msgspec.structs.replace(storage, base=None, base_schema=0, merged_seq=0)
