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
    epoch          it was published before the log had a segment of it

Repair deletes nothing. It never frees the number of a record: a copy of the record that serves
instead replaces it, so a process that slept cannot publish under the number. Each step is visible
in the store, so the next repair completes an interrupted one, and a further repair has nothing to
do. No other process may own the store meanwhile, except for steps on records of dead jobs; others
may read and maintain it.

Over 400 lines: the proof of one part decides the steps for another, so they are planned and carried
out in one place.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import table_schema_of
from siltstone.engine.read.reader import plain_folder
from siltstone.errors import CorruptionError, SiltstoneError, UnavailableError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats import manifest
from siltstone.formats.frame import Frame
from siltstone.formats.manifest import KeyedStorage, Pin, Record
from siltstone.maintenance.backup.backup import Progress, named_by
from siltstone.maintenance.gc.sweep import distinct, pins_of
from siltstone.maintenance.index.indexer import Indexer
from siltstone.maintenance.repair.integrity import UNREADABLE, Integrity, relative
from siltstone.maintenance.repair.quarantine import Item, Quarantine
from siltstone.maintenance.repair.repair_plan import RecordCopy, Repaired, RepairPlan
from siltstone.maintenance.repair.verify import ERROR, Verifier, epoch_of_log, told_of
from siltstone.storage.files.files import Files
from siltstone.storage.manifest.manifest_store import RESTORING, ManifestStore, floor_text
from siltstone.storage.manifest.ownership import own
from siltstone.storage.tables import promotion
from siltstone.storage.tables.jobs import Jobs
from siltstone.storage.tables.kept_names import kept_of, unite
from siltstone.storage.tables.tables import INDEX_DIRECTORY, Tables
from siltstone.storage.wal.chain import read_chain, read_stretch
from siltstone.units import SegmentNumber, Seq, require

_FOLDED = "the next merge folds it again from its history, which is intact"
_REBUILT = "the index is removed from base and rebuilt; its file is moved to quarantine"
_log = logging.getLogger(__name__)


class Repairer:
    """See the module."""

    def __init__(
        self,
        *,
        files: Files,
        root: Path,
        manifests: ManifestStore,
        tables: Tables,
        verifier: Verifier,
        quarantine: Quarantine,
        jobs: Jobs,
        indexer: Indexer,
        now_us: Callable[[], int],
    ) -> None:
        self._indexer = indexer
        self._files, self._root, self._jobs, self._now_us = files, root, jobs, now_us
        self._manifests, self._tables = manifests, tables
        self._verifier, self._quarantine = verifier, quarantine

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
        """
        with _refusals(self._root):
            found = self._verifier.run(deep=deep, on_progress=on_progress)
            plan = self._plan(deep=deep)
            folder = ""
            if plan.needs_owner and not dry_run:
                plan, folder = self._owned(deep=deep)
            if not dry_run:
                folder = self._quarantine.take(plan.dead) or folder
        errors = (finding for finding in found.findings if finding.severity == ERROR)
        left = [each for each in errors if relative(self._root, each.path) not in plan.cured]
        return Repaired(dry_run, tuple(plan.steps), tuple(left), folder)

    def _owned(self, *, deep: bool) -> tuple[RepairPlan, str]:
        ownership = own(self._files, self._root)
        try:
            plan = self._plan(deep=deep)
            cross(Failpoint.REPAIR_AFTER_PLAN)
            folder = self._carry_out(plan)
            if plan.unindexed:
                self._rebuild()
            return plan, folder
        finally:
            ownership.release()

    def _rebuild(self) -> None:
        try:
            self._indexer.catch_up()
        except SiltstoneError as error:  # no answer needs them, and the next optimize builds them
            _log.warning("the damaged indexes are not rebuilt yet: %s", error)

    # planning: looks only

    def _plan(self, *, deep: bool) -> RepairPlan:
        plan = RepairPlan()
        self._plan_floor(plan)
        integrity = Integrity(self._files, self._root, self._tables.reader, deep=deep)
        numbers = self._manifests.numbers(below_floor=True)
        records = dict(self._readable(numbers))
        kept = [number for number in numbers if number >= self._floor(plan)]
        if kept and records:
            self._plan_spares(plan, records, integrity)
            self._plan_newest(plan, kept, records, integrity)
            self._plan_old_bases(plan, kept[-1], records, integrity)
            self._plan_unreadable(plan, numbers, kept, records)
        self._plan_jobs(plan)
        if records and self._files.exists(self._root / RESTORING):
            plan.items.append(Item(RESTORING, "the restore was finished"))
            plan.add(RESTORING, "left by a complete restore", "moved to quarantine")
        return plan

    def _plan_jobs(self, plan: RepairPlan) -> None:
        """A dead job is evidence: without its record nothing is lost but what could be resumed."""
        for seen in self._jobs.list():
            if not seen.is_running:
                path = relative(self._root, self._jobs.path(seen.id))
                plan.dead.append(Item(path, "its process died"))
                done = "moved to quarantine; the work is repeated, vacuum deletes its files"
                plan.add(path, told_of(seen), done)

    def _readable(self, numbers: Sequence[int]) -> Iterator[tuple[int, Record]]:
        for number in numbers:
            with contextlib.suppress(*UNREADABLE):
                yield number, self._manifests.read(number)

    def _floor(self, plan: RepairPlan) -> int:
        return self._manifests.floor() if plan.floor is None else plan.floor

    def _plan_floor(self, plan: RepairPlan) -> None:
        """FLOOR is lost: the lowest number from which on every record stands there is as good."""
        numbers = self._manifests.numbers(below_floor=True)
        try:
            floor = self._manifests.floor()
        except CorruptionError as error:
            wrong = error.reason
        else:
            if floor or not numbers or numbers[0] == 1:
                return
            wrong = f"missing, but records below {numbers[0]} were vacuumed"
        if not numbers:
            return
        first = numbers[-1]
        standing = set(numbers)
        while first - 1 in standing:
            first -= 1
        plan.floor = first
        path = relative(self._root, self._manifests.folder / "FLOOR")
        plan.add(path, wrong, f"written again: {first}; all records from it on exist")

    def _plan_spares(
        self, plan: RepairPlan, records: dict[int, Record], integrity: Integrity
    ) -> None:
        """A file that is damaged where the store reads it may be whole at its public name."""
        newest = records[max(records)]
        pins = [pin for record in records.values() for pin in pins_of(record)]
        with contextlib.suppress(*UNREADABLE):
            pins += named_by(self._log(newest, newest.last_seq)[0])
        for pin in distinct(pins).values():
            spare = integrity.spare(pin)
            for path, wrong in spare.items():
                plan.items.append(Item(kept_of(path) or path, wrong))
                plan.add(path, wrong, "moved to quarantine; the file at its public name is whole")
            if spare:
                plan.united.add(plain_folder(pin))
                integrity.heal(spare)

    def _plan_newest(
        self,
        plan: RepairPlan,
        kept: Sequence[int],
        records: dict[int, Record],
        integrity: Integrity,
    ) -> None:
        """Find what serves when the newest record does not, and a proof that nothing is lost."""
        newest = records.get(kept[-1])
        store_id = _store_id(records)
        whole = [
            records[number]
            for number in kept
            if number in records
            and records[number].store_id == store_id
            and not self._damage(records[number], integrity)
        ]
        if newest is not None and newest.store_id == store_id:
            if newest in whole:
                self._plan_epoch(plan, newest)
                return
            if self._plan_bases(plan, newest, integrity):
                return
        ours = {n: record for n, record in records.items() if record.store_id == store_id}
        if not whole or not self._is_all(whole[-1], ours, integrity):
            return
        # Lost records may have condemned files of jobs that go on: those must begin again.
        sound = msgspec.structs.replace(
            whole[-1], condemned_before_us=max(self._now_us(), whole[-1].gc_horizon_us)
        )
        plan.base, plan.top = sound, kept[-1]
        plan.epoch = self._log_epoch(sound)
        for number in kept[kept.index(sound.number) + 1 :]:
            self._plan_copy(plan, number, sound, self._wrong(number, records, store_id, integrity))
            found = records.pop(number, None)
            if found is not None and found.store_id == store_id:
                plan.cured.update(self._damage(found, integrity))
        pins = distinct(pin for record in records.values() for pin in pins_of(record))
        for folder in sorted({plain_folder(pin) for pin in pins.values()}):
            self._plan_links(plan, folder, pins)

    def _plan_links(self, plan: RepairPlan, folder: str, stay: Collection[str]) -> None:
        """Take public names of versions of ours away, but those whose manifests `stay`.

        Readers of the plain path would see them, and take them for newer, as long as they stand.
        """
        where, public = self._root / folder, self._root / folder / "_versions"
        names = self._files.list(public) if self._files.is_dir(public) else ()
        names = [name for name in names if promotion.version_of(name) is not None]
        kept = [self._root / p for p in stay if p.startswith(f"{folder}/") and self._is_there(p)]
        ours = promotion.identities(self._files, where, [public / name for name in names])
        for name in names:
            same = [p for p in kept if promotion.is_same(self._files, public / name, p)]
            if not same and self._files.identity(public / name) in ours:
                why = "the public name of a version that no longer serves"
                plan.items.append(Item(f"{folder}/_versions/{name}", why))

    def _is_there(self, path: str) -> bool:
        return self._files.exists(self._root / path)

    def _wrong(
        self, number: int, records: dict[int, Record], store_id: str, integrity: Integrity
    ) -> str:
        record = records.get(number)
        if record is None:
            return "it cannot be read"
        if record.store_id != store_id:
            return f"it is of store {record.store_id}"
        path, wrong = next(iter(self._damage(record, integrity).items()), ("", "it is damaged"))
        return f"{path}: {wrong}"

    def _plan_copy(self, plan: RepairPlan, number: int, sound: Record, wrong: str) -> None:
        copy = manifest.encode(msgspec.structs.replace(sound, number=number))
        path = relative(self._root, self._manifests.path(number))
        plan.items.append(Item(path, wrong, copy))
        serves = f"record {sound.number} serves instead"
        plan.add(path, wrong, f"moved to quarantine, {serves}: nothing that was committed is lost")

    def _plan_epoch(self, plan: RepairPlan, newest: Record) -> None:
        """Records above are lost, file and all: the log says that there was a later epoch."""
        epoch = self._log_epoch(newest)
        if epoch <= newest.epoch or not self._is_all(newest, {newest.number: newest}, None):
            return
        plan.top, plan.epoch = newest.number, epoch
        plan.base = msgspec.structs.replace(
            newest, condemned_before_us=max(self._now_us(), newest.gc_horizon_us)
        )
        path = relative(self._root, self._manifests.path(newest.number))
        wrong = f"its epoch is {newest.epoch}, the log is of epoch {epoch}"
        plan.add(path, wrong, "its epoch is published again; the log has all later commits")

    def _log_epoch(self, record: Record) -> int:
        with contextlib.suppress(FileNotFoundError):
            return max(record.epoch, epoch_of_log(self._files, self._root / "wal", record.store_id))
        return record.epoch

    def _damage(self, record: Record, integrity: Integrity) -> dict[str, str]:
        found: dict[str, str] = {}
        for pin in distinct(pins_of(record)).values():
            found |= integrity.damage(pin)
        return found

    def _plan_bases(self, plan: RepairPlan, newest: Record, integrity: Integrity) -> bool:
        """Have bases folded again, and indexes built again, when nothing else is damaged.

        A base is folded again only if its history is whole.
        """
        broken, unindexed = _damaged_bases(newest, integrity)
        if not self._is_base_only(newest, broken, unindexed, integrity):
            return False
        plan.base, plan.top = newest, newest.number
        plan.broken, plan.unindexed = broken, unindexed
        for storage in broken:
            self._plan_base(plan, storage, integrity, _FOLDED)
        for storage in unindexed:
            self._plan_base(plan, storage, integrity, _REBUILT)
        self._plan_rotten(plan, unindexed, integrity)
        return True

    def _is_base_only(
        self,
        record: Record,
        broken: Sequence[KeyedStorage],
        unindexed: Sequence[KeyedStorage],
        integrity: Integrity,
    ) -> bool:
        """Say whether these are all that is damaged, and history has what is broken."""
        folders = tuple(f"{storage.folder}/base" for storage in (*broken, *unindexed))
        others = [pin for pin in pins_of(record) if not pin.path.startswith(folders)]
        if not folders or any(integrity.damage(pin) for pin in others):
            return False
        return all(_is_complete(record, storage) for storage in broken)

    def _plan_base(
        self, plan: RepairPlan, storage: KeyedStorage, integrity: Integrity, done: str
    ) -> None:
        assert storage.base is not None
        damage = integrity.damage(storage.base)
        plan.cured.update(damage)
        path, wrong = next(iter(damage.items()))
        plan.add(path, wrong, done)

    def _plan_rotten(
        self, plan: RepairPlan, unindexed: Sequence[KeyedStorage], integrity: Integrity
    ) -> None:
        """Put the damaged files of indexes aside, and remember whose they are."""
        known = {item.path for item in plan.late}
        for storage in unindexed:
            assert storage.base is not None
            for path, wrong in integrity.damage(storage.base).items():
                plan.rotten.add(path.split("/")[-2])
                if path not in known and self._is_there(path):
                    plan.late.append(Item(path, wrong))

    def _plan_old_bases(
        self, plan: RepairPlan, newest: int, records: dict[int, Record], integrity: Integrity
    ) -> None:
        """Let older records, which the past is read from, do without what is damaged in bases."""
        for number, record in records.items():
            if number == newest and not (plan.broken or plan.unindexed):
                continue
            broken, unindexed = _damaged_bases(record, integrity)
            if self._is_base_only(record, broken, unindexed, integrity):
                self._plan_without(plan, record, broken, unindexed, integrity)

    def _plan_without(
        self,
        plan: RepairPlan,
        record: Record,
        broken: tuple[KeyedStorage, ...],
        unindexed: tuple[KeyedStorage, ...],
        integrity: Integrity,
    ) -> None:
        damage = self._damage(record, integrity)
        path = relative(self._root, self._manifests.path(record.number))
        file, wrong = next(iter(damage.items()))
        plan.copies.append(RecordCopy(record, f"{file}: {wrong}", broken, unindexed))
        self._plan_rotten(plan, unindexed, integrity)
        plan.cured.update(damage)
        reads = "history" if broken else "base without the index"
        plan.add(path, f"{file}: {wrong}", f"moved to quarantine, its copy reads {reads} instead")

    def _is_all(
        self, record: Record, records: dict[int, Record], integrity: Integrity | None
    ) -> bool:
        """Say whether a record and the log together are proven to be every commit."""
        try:
            frames, start = self._log(record, max(each.last_seq for each in records.values()))
        except UNREADABLE:
            return False
        if start > record.flushed_seq:
            return False
        pins = distinct(named_by(frames)).values()
        return integrity is None or not any(integrity.damage(pin) for pin in pins)

    def _log(self, record: Record, last_seq: int) -> tuple[list[Frame], int]:
        """Return all frames from a record's floor on, and the seq that they follow."""
        chain = read_chain(
            self._files,
            self._root / "wal",
            store_id=bytes.fromhex(record.store_id),
            floor=SegmentNumber(record.wal_floor),
            last_seq=Seq(last_seq),
        )
        frames = [frame for stretch in chain.old for frame in read_stretch(self._files, stretch)]
        frames += chain.frames
        first = chain.old[0] if chain.old else chain.newest
        return [f for f in frames if f.last_seq > record.flushed_seq], first.header.previous.seq

    def _plan_unreadable(
        self,
        plan: RepairPlan,
        numbers: Sequence[int],
        kept: Sequence[int],
        records: dict[int, Record],
    ) -> None:
        """Older records that cannot be read stop every vacuum: neighbours serve instead."""
        planned = {item.path for item in plan.items}
        for number in numbers:
            path = relative(self._root, self._manifests.path(number))
            if number in records or path in planned or number > max(records):
                continue
            if number < kept[0]:
                plan.items.append(Item(path, "it cannot be read"))
                plan.add(path, "it cannot be read", "moved to quarantine; it served a tag")
                continue
            below = [n for n in kept if n < number and n in records]
            serves = records[below[-1] if below else min(n for n in kept if n in records)]
            copy = manifest.encode(msgspec.structs.replace(serves, number=number))
            plan.items.append(Item(path, "it cannot be read", copy))
            done = (
                f"moved to quarantine, record {serves.number} stands in; seqs that only it served"
            )
            plan.add(path, "it cannot be read", f"{done} are refused from now on")

    # carrying out

    def _carry_out(self, plan: RepairPlan) -> str:
        folder = self._take_floor(plan)
        cross(Failpoint.REPAIR_AFTER_FLOOR)
        folder = self._quarantine.take(plan.items) or folder
        for dataset in sorted(plan.united):  # a crash before it is mended by the next opening
            unite(self._files, self._root, dataset)
        cross(Failpoint.REPAIR_BEFORE_PUBLISH)
        if plan.base is not None:
            fresh = {each.incarnation: self._begun_again(plan.base, each) for each in plan.broken}
            fresh |= self._without_indexes(plan.unindexed, plan.rotten)
            base = msgspec.structs.replace(plan.base, number=plan.top)
            self._manifests.publish(
                lambda record: _changed(record, fresh, plan.epoch), base=base, attempts=1
            )
        cross(Failpoint.REPAIR_AFTER_PUBLISH)
        late = [self._copied(copy, plan.rotten) for copy in plan.copies]
        return self._quarantine.take([*late, *plan.late]) or folder

    def _copied(self, copy: RecordCopy, rotten: Collection[str]) -> Item:
        """Return the step that puts a copy of an older record in its place."""
        number = copy.record.number
        none = {
            each.incarnation: msgspec.structs.replace(each, base=None, base_schema=0, merged_seq=0)
            for each in copy.broken
        }
        changed = _changed(copy.record, none | self._without_indexes(copy.unindexed, rotten), 0)
        path = relative(self._root, self._manifests.path(number))
        return Item(path, copy.wrong, manifest.encode(changed))

    def _without_indexes(
        self, storages: Sequence[KeyedStorage], rotten: Collection[str]
    ) -> dict[int, KeyedStorage]:
        """Return storages whose bases do without the segments that are rotten."""
        found: dict[int, KeyedStorage] = {}
        for storage in storages:
            assert storage.base is not None
            pin = self._tables.indexer.put(
                f"{storage.folder}/base", storage.base, (), sorted(rotten)
            )
            found[storage.incarnation] = msgspec.structs.replace(storage, base=pin)
        return found

    def _begun_again(self, record: Record, storage: KeyedStorage) -> KeyedStorage:
        """Return a storage whose base is empty, of a version above all others in its folder.

        The base as of seq 0 is just that. Without a version above them, readers of the plain path
        would take an older one for the newest.
        """
        folder = f"{storage.folder}/base"
        table = catalogs.owner_of(record.catalog, storage.incarnation)
        table_schema = table_schema_of(catalogs.schema_by_id(table, storage.base_schema))
        for pin in self._bases(storage.incarnation):
            with contextlib.suppress(CorruptionError):
                empty = self._tables.writer.overwrite(folder, pin, table_schema.arrow, ())
                return msgspec.structs.replace(storage, base=empty, merged_seq=0)
        return msgspec.structs.replace(storage, base=None, base_schema=0, merged_seq=0)

    def _bases(self, incarnation: int) -> list[Pin]:
        """Return the bases that an incarnation ever had, as far as records know, newest first."""
        numbers = self._manifests.numbers(below_floor=True)
        pins = {
            storage.base.path: storage.base
            for _, record in self._readable(numbers)
            for storage in record.keyed
            if storage.incarnation == incarnation and storage.base is not None
        }
        return sorted(pins.values(), key=lambda pin: -pin.version)

    def _take_floor(self, plan: RepairPlan) -> str:
        if plan.floor is None:
            return ""
        path = self._manifests.folder / "FLOOR"
        there = self._files.exists(self._manifests.path(plan.floor))
        require(there, f"FLOOR {plan.floor} has no record")
        text = floor_text(plan.floor)
        if not self._files.exists(path):
            self._files.replace(path, text)
            return ""
        item = Item(relative(self._root, path), "it cannot be read", text)
        return self._quarantine.take([item])


def _store_id(records: dict[int, Record]) -> str:
    """Return the store's id: what the oldest record says."""
    return records[min(records)].store_id


def _changed(record: Record, fresh: dict[int, KeyedStorage], epoch: int) -> Record:
    keyed = tuple(fresh.get(storage.incarnation, storage) for storage in record.keyed)
    return msgspec.structs.replace(record, keyed=keyed, epoch=max(epoch, record.epoch))


def _damaged_bases(
    record: Record, integrity: Integrity
) -> tuple[tuple[KeyedStorage, ...], tuple[KeyedStorage, ...]]:
    """Return the storages whose bases are damaged, and those of which only indexes are."""
    damaged = [
        (storage, integrity.damage(storage.base))
        for storage in record.keyed
        if storage.base is not None and integrity.damage(storage.base)
    ]

    def is_index(storage: KeyedStorage, paths: Iterable[str]) -> bool:
        return all(path.startswith(f"{storage.folder}/base/{INDEX_DIRECTORY}/") for path in paths)

    broken = tuple(storage for storage, paths in damaged if not is_index(storage, paths))
    return broken, tuple(storage for storage, paths in damaged if is_index(storage, paths))


def _is_complete(record: Record, storage: KeyedStorage) -> bool:
    """Say whether history has every version of an incarnation since it began."""
    loads = [
        step.versions
        for table in record.catalog.tables
        for step in table.incarnations
        if step.id == storage.incarnation
    ]
    return storage.history is not None and not storage.history_from and not any(loads)


@contextlib.contextmanager
def _refusals(root: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"repair of {root}: {error}") from error
