"""Repair plan: what a repair is to do, step by step, and what it reports.

`Planner` makes one. It only reads; `maintenance.repair.repair` names the proofs that it asks for.
Over 400 lines: the proof of one part decides the steps for another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field

import msgspec

from siltstone.errors import CorruptionError
from siltstone.formats import manifest
from siltstone.formats.log.frame import Frame
from siltstone.formats.manifest import KeyedStorage, Pin, Record, pins_of
from siltstone.maintenance.backup.backup import named_by
from siltstone.maintenance.gc.sweep import distinct
from siltstone.maintenance.repair.integrity import UNREADABLE, Damage, Integrity, relative
from siltstone.maintenance.repair.quarantine import Item
from siltstone.maintenance.repair.verify import (
    Finding,
    chain_of,
    epoch_of_log,
    lost_floor,
    readable,
    told_of,
)
from siltstone.storage.files.files import names_in
from siltstone.storage.manifest.floor import Floor
from siltstone.storage.manifest.manifest_store import RESTORING
from siltstone.storage.site import Site
from siltstone.storage.tables import base_numbers, promotion
from siltstone.storage.tables.kept_names import kept_of, place
from siltstone.storage.tables.keys.run_file import KEYS
from siltstone.storage.tables.values import INDEX_DIRECTORY
from siltstone.storage.wal.chain import read_stretch

_FOLDED = "the next merge folds it again from its history, which is intact"
_DERIVED = "; made again from the manifest next to it, which is intact"
_REBUILT = "the index is removed from base and rebuilt; its file is moved to quarantine"
_REWRITTEN = "the key run is written again from the keys of base; its file is moved to quarantine"
_UNREADABLE = "it cannot be read"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a repair: its file, the damage, the action."""

    path: str
    wrong: str
    done: str

    def __str__(self) -> str:
        return f"{self.path}: {self.wrong} -> {self.done}"


@dataclass(frozen=True, slots=True)
class Repaired:
    """The steps of a repair, and the damage that it cannot repair: restore it from a backup.

    `quarantine` is the folder with the moved files, "" for none.

    Examples:
        >>> db.repair().is_whole
        True
    """

    is_dry_run: bool
    steps: tuple[Step, ...]
    unproven: tuple[Finding, ...]
    quarantine: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether no damage is left."""
        return not self.unproven

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain values."""
        return {**asdict(self), "is_whole": self.is_whole}

    def __str__(self) -> str:
        verb = "would repair" if self.is_dry_run else "repaired"
        lines = [f"{verb} {len(self.steps)} things, {len(self.unproven)} cannot be repaired"]
        return "\n".join([*lines, *map(str, self.steps), *map(str, self.unproven)])


@dataclass(frozen=True, slots=True)
class DamagedBases:
    """The storages of a record whose bases are `broken`, and those of which only indexes are."""

    broken: tuple[KeyedStorage, ...] = ()
    unindexed: tuple[KeyedStorage, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordCopy:
    """An older record that is to do without some bases, or without indexes of some."""

    record: Record
    wrong: str
    bases: DamagedBases


@dataclass(slots=True)
class RepairPlan:
    """What to do: FLOOR and NUMBERS to write, the record to publish, the files to move aside.

    Of `bases` the broken ones begin again, empty, the others go on without the segments of indexes
    (by id) and the key runs (by path) that are `rotten`; `copies` of older records and the files
    `late` go when that is published. Files of the datasets `united` get their second names again,
    those that are `lost` their bytes. The records of jobs that are `dead` have no process: an owner
    may be there. `newest` is the highest number of a record: a store with less is another one.
    """

    floor: Floor | None = None
    numbers: bytes = b""
    base: Record | None = None
    epoch: int = 0
    top: int = 0
    newest: int = 0
    bases: DamagedBases = field(default_factory=DamagedBases)
    rotten: set[str] = field(default_factory=set)
    united: set[str] = field(default_factory=set)
    lost: dict[str, bytes] = field(default_factory=dict)
    copies: list[RecordCopy] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    late: list[Item] = field(default_factory=list)
    dead: list[Item] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    cured: set[str] = field(default_factory=set)

    @property
    def needs_owner(self) -> bool:
        return len(self.steps) > len(self.dead)

    def add(self, path: str, wrong: str, done: str) -> None:
        self.steps.append(Step(path, wrong, done))
        self.cured.add(path)

    def move(self, path: str, wrong: str, done: str, instead: bytes | None = None) -> None:
        """Add a step that moves a file into quarantine."""
        self.items.append(Item(path, wrong, instead))
        self.add(path, wrong, f"moved to quarantine{done}")


class Planner:
    """Plans one repair; see the module.

    `deep`: check every byte, as a deep verification.
    """

    def __init__(self, site: Site, *, deep: bool) -> None:
        self._files, self._root, self._jobs = site.files, site.root, site.jobs
        self._manifests, self._now_us = site.manifests, site.now_us
        self._plan = RepairPlan()
        self._integrity = Integrity(site, deep=deep)
        self._numbers: list[int] = []
        self._kept: list[int] = []
        self._records: dict[int, Record] = {}

    def run(self) -> RepairPlan:
        """Return the plan."""
        self._plan_floor()
        for number in self._manifests.numbers(below_floor=True):
            self._plan.newest = number
            self._look_at(number)
        floor = self._floor()
        self._kept = [number for number in self._numbers if floor.keeps(number)]
        if self._kept and self._records:
            self._plan_spares()
            self._plan_newest()
            self._plan_old_bases()
            self._plan_unreadable()
        self._plan_numbers()
        self._plan_jobs()
        if self._records and self._files.exists(self._root / RESTORING):
            self._plan.items.append(Item(RESTORING, "the restore was finished"))
            self._plan.add(RESTORING, "left by a complete restore", "moved to quarantine")
        return self._plan

    def _look_at(self, number: int) -> None:
        """Look at a record's files under a lease: what vacuum takes afterwards is no damage."""
        lease = self._manifests.lease(number, below_floor=True)
        if lease is None:
            return  # vacuumed since the listing
        with lease:
            self._numbers.append(number)
            for _, record in readable(self._manifests, [number]):
                self._records[number] = record
                for pin in pins_of(record):
                    self._integrity.damage(pin)
                with contextlib.suppress(*UNREADABLE):  # it was damaged meanwhile
                    self._integrity.wrong_runs(record)

    def _path(self, number: int) -> str:
        return relative(self._root, self._manifests.path(number))

    def _plan_jobs(self) -> None:
        """A dead job is evidence: without its record nothing is lost but what could be resumed."""
        for seen in self._jobs.list():
            if not seen.is_running:
                path = relative(self._root, self._jobs.path(seen.id))
                self._plan.dead.append(Item(path, "its process died"))
                done = "moved to quarantine; the work is repeated, vacuum deletes its files"
                self._plan.add(path, told_of(seen), done)

    def _plan_numbers(self) -> None:
        """A repair may go back; no base gets a number again that other clients know (ADR 64)."""
        highest = base_numbers.highest(self._files, self._root, self._now_us())
        try:
            known = base_numbers.known(self._files, self._root)
            self._plan.numbers = base_numbers.text_of(max(known, highest))
        except CorruptionError as error:  # the time was above it when it was written, too
            done = "; written again, above all numbers of bases"
            self._plan.move(base_numbers.NAME, error.reason, done, base_numbers.text_of(highest))

    def _floor(self) -> Floor:
        return self._manifests.kept() if self._plan.floor is None else self._plan.floor

    def _plan_floor(self) -> None:
        """FLOOR is lost: what exists says which records it kept."""
        numbers = self._manifests.numbers(below_floor=True)
        try:
            floor = self._manifests.kept()
        except CorruptionError as error:
            wrong = error.reason
        else:
            records = dict(readable(self._manifests, numbers))
            wrong = None if floor.number else lost_floor(numbers, records)
        if not numbers or wrong is None:
            return
        self._plan.floor = floor = self._standing(numbers)
        done = f"written again: {floor.number}; all records from it on exist"
        if floor.upto:
            done = f"written again: {floor.number}; the records from it on that exist are kept"
        self._plan.add(relative(self._root, self._manifests.folder / "FLOOR"), wrong, done)

    def _standing(self, numbers: Sequence[int]) -> Floor:
        """Return the floor that keeps the existing records of the readable past.

        Without thinned records, the lowest number from which on every record stands is as good.
        """
        records = dict(readable(self._manifests, numbers))
        newest = records[max(records)] if records else None
        if newest is not None and newest.may_be_thinned:
            kept = (n for n, record in records.items() if record.flushed_seq >= newest.oldest_seq)
            return Floor.of(kept, numbers[-1])
        first, standing = numbers[-1], set(numbers)
        while first - 1 in standing:
            first -= 1
        return Floor(first)

    def _plan_spares(self) -> None:
        """A file that is damaged where the store reads it may be whole at its public name."""
        plan, newest = self._plan, self._records[max(self._records)]
        pins = [pin for record in self._records.values() for pin in pins_of(record)]
        with contextlib.suppress(*UNREADABLE):
            pins += named_by(self._log(newest, newest.last_seq)[0])
        for pin in distinct(pins).values():
            spare = self._integrity.spare(pin)
            for path, wrong in spare.items():
                plan.items.append(Item(kept_of(path) or path, wrong))
                plan.add(path, wrong, "moved to quarantine; the file at its public name is whole")
            if spare:
                plan.united.add(pin.folder)
                self._integrity.heal(spare)
            self._plan_twins(pin)
            self._plan_derived(pin)

    def _plan_twins(self, pin: Pin) -> None:
        """Which rows are hidden is written twice: the store's own copy replaces the other one."""
        twins = self._integrity.twins(pin)
        for path, wrong in twins.items():
            data = self._files.read(place(self._files, self._root, path))
            done = "; copied again from the store's own, which is whole"
            self._plan.move(path, wrong, done, data)
        self._integrity.heal(twins)

    def _plan_derived(self, pin: Pin) -> None:
        """A file whose bytes follow from a manifest that is whole is written again."""
        plan, derived = self._plan, self._integrity.derived(pin)
        for path, data in derived.items():
            wrong = self._integrity.damage(pin)[path]
            if self._is_there(path):
                plan.move(path, wrong, _DERIVED, data)
            else:
                plan.lost[path] = data
                plan.add(path, wrong, f"missing{_DERIVED}")
        if derived:
            self._integrity.heal(derived)

    def _plan_newest(self) -> None:
        """Find what serves when the newest record does not, and a proof that nothing is lost."""
        plan, kept, records = self._plan, self._kept, self._records
        store_id = records[min(records)].store_id
        ours = {n: record for n, record in records.items() if record.store_id == store_id}
        whole = [ours[n] for n in kept if n in ours and not self._damage(ours[n])]
        newest = ours.get(kept[-1])
        if newest is not None:
            if newest in whole:
                self._plan_lost(newest)
                return
            if self._plan_bases(newest):
                return
        if not whole or not self._is_all(whole[-1], ours):
            return
        # Lost records may have condemned files of jobs that go on: those must begin again.
        sound = self._above_all_jobs(whole[-1])
        plan.base, plan.top, plan.epoch = sound, kept[-1], self._log_epoch(sound)
        for number in kept[kept.index(sound.number) + 1 :]:
            self._plan_copy(number, sound, self._wrong(number, store_id))
            records.pop(number, None)
            if number in ours:
                plan.cured.update(self._damage(ours[number]))
        pins = [pin for record in records.values() for pin in pins_of(record)]
        for folder in sorted({pin.folder for pin in pins}):
            self._plan_links(folder, {pin.path for pin in pins})

    def _above_all_jobs(self, record: Record) -> Record:
        """Return a record that makes all jobs begin again."""
        horizon_us = max(self._now_us(), record.gc_horizon_us)
        return msgspec.structs.replace(record, gc_horizon_us=horizon_us)

    def _plan_links(self, folder: str, stay: Collection[str]) -> None:
        """Take public names of versions of ours away, but those whose manifests `stay`.

        Readers of the plain path would see them, and take them for newer, as long as they stand.
        """
        where, public = self._root / folder, self._root / folder / "_versions"
        listed = names_in(self._files, public)
        names = [name for name in listed if promotion.version_of(name) is not None]
        kept = [self._root / p for p in stay if p.startswith(f"{folder}/") and self._is_there(p)]
        ours = promotion.identities(self._files, where, [public / name for name in names])
        for name in names:
            same = [p for p in kept if promotion.is_same(self._files, public / name, p)]
            if not same and self._files.identity(public / name) in ours:
                why = "the public name of a version that no longer serves"
                self._plan.items.append(Item(f"{folder}/_versions/{name}", why))

    def _is_there(self, path: str) -> bool:
        return self._files.exists(self._root / path)

    def _wrong(self, number: int, store_id: str) -> str:
        record = self._records.get(number)
        if record is None:
            return _UNREADABLE
        if record.store_id != store_id:
            return f"it is of store {record.store_id}"
        path, wrong = next(iter(self._damage(record).items()), ("", "it is damaged"))
        return f"{path}: {wrong}"

    def _plan_copy(self, number: int, sound: Record, wrong: str) -> None:
        copy = manifest.encode(msgspec.structs.replace(sound, number=number))
        serves = f"record {sound.number} serves instead"
        done = f", {serves}: nothing that was committed is lost"
        self._plan.move(self._path(number), wrong, done, copy)

    def _plan_lost(self, newest: Record) -> None:
        """Records above are lost, file and all: the log is of a later epoch."""
        epoch = self._log_epoch(newest)
        if epoch <= newest.epoch or not self._is_all(newest):
            return
        self._plan.top, self._plan.epoch = newest.number, epoch
        self._plan.base = self._above_all_jobs(newest)
        done = "it is published again with that of the log, which has all later commits"
        wrong = f"its epoch is {newest.epoch}, the log is of epoch {epoch}"
        self._plan.add(self._path(newest.number), wrong, done)

    def _log_epoch(self, record: Record) -> int:
        with contextlib.suppress(FileNotFoundError):
            return max(record.epoch, epoch_of_log(self._files, self._root / "wal", record.store_id))
        return record.epoch

    def _damage(self, record: Record) -> Damage:
        found: Damage = {}
        for pin in distinct(pins_of(record)).values():
            found |= self._integrity.damage(pin)
        return found

    def _damage_of_base(self, storage: KeyedStorage) -> Damage:
        """Return what is damaged of a base, and of the key runs of loads, which go the same way."""
        found = {} if storage.base is None else dict(self._integrity.damage(storage.base))
        for load in storage.loads:
            damage = self._integrity.damage(load.pin)
            found |= {path: wrong for path, wrong in damage.items() if _is_run(path)}
        return found

    def _plan_bases(self, newest: Record) -> bool:
        """Have bases folded again, and indexes built again, when nothing else is damaged.

        A base is folded again only if its history is whole.
        """
        plan, bases = self._plan, self._damaged_bases(newest)
        if not self._is_base_only(newest, bases):
            return False
        plan.base, plan.top, plan.bases = newest, newest.number, bases
        for storages, done in ((bases.broken, _FOLDED), (bases.unindexed, _REBUILT)):
            for damage in map(self._damage_of_base, storages):
                plan.cured.update(damage)
                path, wrong = next(iter(damage.items()))
                plan.add(path, wrong, _REWRITTEN if _is_run(path) else done)
        self._plan_rotten(bases)
        return True

    def _damaged_bases(self, record: Record) -> DamagedBases:
        """Return the storages whose bases are damaged, and those of which only indexes are."""
        damaged = [s for s in record.keyed if self._damage_of_base(s)]
        unindexed = tuple(storage for storage in damaged if self._has_only_indexes_damaged(storage))
        return DamagedBases(tuple(s for s in damaged if s not in unindexed), unindexed)

    def _has_only_indexes_damaged(self, storage: KeyedStorage) -> bool:
        base = f"{storage.folder}/base"
        spare = f"{base}/{INDEX_DIRECTORY}/"
        return all(
            path.startswith(spare) or _is_run(path) for path in self._damage_of_base(storage)
        )

    def _is_base_only(self, record: Record, bases: DamagedBases) -> bool:
        """Say whether these are all that is damaged, and history has what is broken."""
        folders = tuple(f"{storage.folder}/base" for storage in (*bases.broken, *bases.unindexed))
        others = [pin for pin in pins_of(record) if not pin.path.startswith(folders)]
        runs = {path for s in bases.unindexed for path in self._damage_of_base(s) if _is_run(path)}
        if not folders or any(self._integrity.damage(pin).keys() - runs for pin in others):
            return False
        return all(_is_complete(record, storage) for storage in bases.broken)

    def _plan_rotten(self, bases: DamagedBases) -> None:
        """Put the damaged files of indexes aside, and remember whose they are."""
        known = {item.path for item in self._plan.late}
        for damage in map(self._damage_of_base, bases.unindexed):
            for path, wrong in damage.items():
                self._plan.rotten.add(path if _is_run(path) else path.split("/")[-2])
                if path not in known and self._is_there(path):
                    self._plan.late.append(Item(path, wrong))

    def _plan_old_bases(self) -> None:
        """Let older records, which the past is read from, do without what is damaged in bases."""
        for number, record in self._records.items():
            if number == self._kept[-1] and self._plan.bases == DamagedBases():
                continue
            bases = self._damaged_bases(record)
            if self._is_base_only(record, bases):
                self._plan_without(record, bases)

    def _plan_without(self, record: Record, bases: DamagedBases) -> None:
        damage = self._damage(record)
        file, wrong = next(iter(damage.items()))
        self._plan.copies.append(RecordCopy(record, f"{file}: {wrong}", bases))
        self._plan_rotten(bases)
        self._plan.cured.update(damage)
        reads = "history" if bases.broken else "base without it"
        done = f"moved to quarantine, its copy reads {reads} instead"
        self._plan.add(self._path(record.number), f"{file}: {wrong}", done)

    def _is_all(self, record: Record, records: dict[int, Record] | None = None) -> bool:
        """Say whether a record and the log together are proven to be every commit.

        `records` are those whose last seqs the log must reach; None: `record` alone, whose frames
        were found whole.
        """
        try:
            known = [record] if records is None else records.values()
            frames, start = self._log(record, max(each.last_seq for each in known))
        except UNREADABLE:
            return False
        if start > record.flushed_seq:
            return False
        pins = distinct(named_by(frames)).values()
        return records is None or not any(self._integrity.damage(pin) for pin in pins)

    def _log(self, record: Record, last_seq: int) -> tuple[list[Frame], int]:
        """Return all frames from a record's floor on, and the seq that they follow."""
        chain = chain_of(self._files, self._root, record, last_seq)
        frames = [frame for stretch in chain.old for frame in read_stretch(self._files, stretch)]
        frames += chain.frames
        first = chain.old[0] if chain.old else chain.newest
        return [f for f in frames if f.last_seq > record.flushed_seq], first.header.previous.seq

    def _plan_unreadable(self) -> None:
        """Older records that cannot be read stop every vacuum: neighbours serve instead."""
        kept, records = self._kept, self._records
        planned = {item.path for item in self._plan.items}
        for number in self._numbers:
            path = self._path(number)
            if number in records or path in planned or number > max(records):
                continue
            if number not in kept:
                self._plan.move(path, _UNREADABLE, "; it served a tag")
                continue
            below = [n for n in kept if n < number and n in records]
            serves = records[below[-1] if below else min(n for n in kept if n in records)]
            copy = manifest.encode(msgspec.structs.replace(serves, number=number))
            done = f", record {serves.number} stands in; seqs that only it served"
            self._plan.move(path, _UNREADABLE, f"{done} are refused from now on", copy)


def _is_run(path: str) -> bool:
    return f"/{KEYS}/" in path


def _is_complete(record: Record, storage: KeyedStorage) -> bool:
    """Say whether history has every version of an incarnation since it began."""
    loads = [
        step.versions
        for table in record.catalog.tables
        for step in table.incarnations
        if step.id == storage.incarnation
    ]
    has_rows = storage.history is not None or bool(storage.loads)
    return has_rows and not storage.history_from and not any(loads)
