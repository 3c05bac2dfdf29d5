"""Verify: reads a store's files and reports every file that is not as written; changes nothing.

    quick   FLOOR, every record, the pins and inventories that they and the log name, the log's
            chain, MARK; external versions; whether readers can open each tag, the oldest seq and
            each record
    deep    also every byte of every file, of both copies of deletion files, and every row: keys of
            base are unique, seqs of history ascend within their range, base is the fold of history
            if history reaches back that far, indexes find what scans find, for some values, and key
            runs all rows of their parts; whether readers can open every kept seq

An error is damage. A warning is a state that the next owner corrects, or a loss without loss of
rows. Drift is an external version, which the store does not read. `maintenance.repair.repair` says
what can be done for each.

A damaged file ends no other check. Files that vacuum deletes meanwhile do not count as missing: a
record is leased while it is checked, the newest one to the end. Of a store that is not there any
more, nothing is said: ReplacedError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np

from siltstone.engine.catalog import catalog as catalogs
from siltstone.engine.catalog.table_schema import TableSchema, table_schema_of
from siltstone.engine.read.read_levels import ReadLevels
from siltstone.engine.read.read_union import KeyedReader
from siltstone.engine.read.reader import Readers
from siltstone.formats.keys import newest_rows
from siltstone.formats.manifest import KeyedStorage, Pin, Record, TableDefinition, pins_of
from siltstone.formats.schema import SEQ_COLUMN
from siltstone.maintenance.backup.backup import (
    Progress,
    created_by,
    named_by,
    newest_with_log,
    tags_of,
)
from siltstone.maintenance.gc.sweep import Sweep, distinct
from siltstone.maintenance.repair.external_appends import external_versions_of, told
from siltstone.maintenance.repair.integrity import UNREADABLE, Integrity
from siltstone.maintenance.repair.kept_past import KeptPast
from siltstone.maintenance.repair.stored_rows import sorted_rows, wrong_indexes
from siltstone.storage.files.files import Files
from siltstone.storage.files.place import in_place
from siltstone.storage.manifest.floor import Floor
from siltstone.storage.manifest.manifest_store import ManifestStore
from siltstone.storage.site import Site
from siltstone.storage.tables import base_numbers
from siltstone.storage.tables.jobs import SeenJob
from siltstone.storage.wal.chain import Chain, read_chain
from siltstone.storage.wal.segments import MARK_NAME, find_segments, read_mark
from siltstone.units import SegmentNumber, Seq

ERROR, WARNING, DRIFT = "error", "warning", "drift"
LOG_ATTEMPTS = 8
AHEAD_S_MAX = 60.0
"""Clocks of machines differ by less."""
_RISING = ("epoch", "last_seq", "flushed_seq", "wal_floor", "oldest_seq", "gc_horizon_us")


@dataclass(frozen=True, slots=True)
class Finding:
    """A file that is not as written: its path, the severity, a message."""

    path: str
    severity: str
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of a verification; it is sound if there is no error.

    Examples:
        >>> db.verify().is_sound
        True
    """

    is_deep: bool
    records: int
    pins: int
    files: int
    rows: int
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether no error was found."""
        return all(finding.severity != ERROR for finding in self.findings)

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain values."""
        return {**asdict(self), "is_sound": self.is_sound}

    def __str__(self) -> str:
        kind = "deep" if self.is_deep else "quick"
        strange = sum(finding.severity == DRIFT for finding in self.findings)
        drift = f", with {strange} versions that siltstone did not write" if strange else ""
        head = (
            f"{'sound' if self.is_sound else 'DAMAGED'} ({kind}){drift}: {self.records} records,"
            f" {self.pins} versions, {self.files} files, {self.rows} rows read"
        )
        return "\n".join([head, *map(str, self.findings)])


@dataclass(slots=True)
class _Tally:
    """What was seen so far."""

    integrity: Integrity
    total: int
    on_progress: Progress | None
    records: int = 0
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    done: int = 0

    def say(self, what: str) -> None:
        if self.on_progress is not None:
            self.on_progress(what, min(self.done, self.total), self.total)

    def error(self, path: object, message: object) -> None:
        self.findings.append(Finding(str(path), ERROR, str(message)))

    def error_once(self, path: str, message: object) -> None:
        if path not in self.named:
            self.named.add(path)
            self.error(path, message)

    def warn(self, path: object, message: object) -> None:
        self.findings.append(Finding(str(path), WARNING, str(message)))


def readable(manifests: ManifestStore, numbers: Iterable[int]) -> Iterator[tuple[int, Record]]:
    """Yield the records that can be read, with their numbers."""
    for number in numbers:
        with contextlib.suppress(*UNREADABLE):
            yield number, manifests.read(number)


def lost_floor(numbers: Sequence[int], records: Mapping[int, Record]) -> str | None:
    """Say why a store without FLOOR once had one; None: nothing says so.

    Args:
        numbers: The numbers of all records, ascending.
        records: Those that can be read, at least the newest.
    """
    if not numbers or numbers[0] > 1:
        return f"missing, but records below {numbers[0]} were vacuumed" if numbers else None
    is_thinned = any(record.may_be_thinned for record in records.values())
    return "missing, but older records were thinned" if is_thinned else None


class Verifier:
    """See the module. Any process may run it, with or without an owner."""

    def __init__(self, site: Site, readers: Readers, look: Callable[[], int] | None = None) -> None:
        """`look`: of a store in a bucket, looks at all files and counts them; see `run`."""
        self._site, self._files, self._root = site, site.files, site.root
        self._look = look
        self._manifests, self._tables, self._jobs = site.manifests, site.tables, site.jobs
        self._readers = readers

    def run(self, *, deep: bool = False, on_progress: Progress | None = None) -> Verified:
        """Verify; calls `on_progress` with the next file, the number of checked files, and of all.

        In a deep verification each file counts twice: for its bytes and for its rows. In a bucket
        there are no log, no second names, no jobs and no versions of others.
        """

        def seen() -> None:
            tally.done += 1

        total = self._count() * (2 if deep else 1)
        tally = _Tally(Integrity(self._site, deep=deep, on_file=seen), total, on_progress)
        past = KeptPast(self._tables.reader, self._readers, tally.integrity.damage)
        newest: Record | None = None
        with in_place(self._files, self._root), ExitStack() as leases:
            for number in self._numbers(tally):
                tally.say(f"record {number}")
                lease = self._manifests.lease(number, below_floor=True)
                if lease is None:
                    continue  # vacuumed since the listing
                record = self._record(number, newest, tally)
                if record is not None:
                    self._pins(pins_of(record), tally)
                    self._runs(record, tally)
                    for wrong in past.unread_in(record, lease):
                        tally.error(self._manifests.path(number), wrong)
                    leases.close()
                    newest = record
                leases.enter_context(lease)
            if newest is not None:
                self._times(newest, tally)
                self._refused(newest, tally)
                self._past(past, tally, deep=deep)
                self._of_a_directory(newest, tally)
                for storage in newest.keyed if deep else ():
                    tally.say(storage.folder)
                    self._rows(newest, storage, tally)
            tally.done = tally.total
            tally.say("done")
        looked = tally.integrity
        counts = tally.records, len(looked.pins), len(looked.files), tally.rows
        return Verified(deep, *counts, tuple(tally.findings))

    def _count(self) -> int:
        if self._look is not None:
            return self._look()
        return len(Sweep(self._files, self._root).listed)

    def _of_a_directory(self, newest: Record, tally: _Tally) -> None:
        if self._look is not None:
            return
        self._known_numbers(tally)
        self._log(newest, tally)
        logged = self._logged_pins(tally)
        self._names(tally)
        self._drift(newest, logged, tally)
        self._dead_jobs(tally)

    def past(self) -> tuple[Finding, ...]:
        """Return the tags, and the oldest seq, that readers cannot read, as `run` finds them."""
        tally = _Tally(Integrity(self._site, deep=False), 0, None)
        past = KeptPast(self._tables.reader, self._readers, tally.integrity.damage)
        self._past(past, tally, deep=False)
        return tuple(tally.findings)

    def _numbers(self, tally: _Tally) -> list[int]:
        floor = self._floor_now(tally)
        numbers = self._manifests.numbers(below_floor=True)
        if not floor.number and not tally.findings:
            reason = lost_floor(numbers, dict(readable(self._manifests, numbers[-1:])))
            if reason is not None:
                tally.error(self._manifests.folder / "FLOOR", reason)
        if not [number for number in numbers if floor.keeps(number)]:
            reason = f"there is no record at or above FLOOR {floor.number}"
            tally.error(self._manifests.folder, reason)
        return numbers

    def _floor_now(self, tally: _Tally) -> Floor:
        try:
            return self._manifests.kept()
        except UNREADABLE as error:
            tally.error_once(str(getattr(error, "path", self._manifests.folder)), error)
            return Floor()

    def _record(self, number: int, older: Record | None, tally: _Tally) -> Record | None:
        tally.records += 1
        path = self._manifests.path(number)
        try:
            record = self._manifests.read(number)
        except UNREADABLE as error:
            tally.error(path, error)
            return None
        if older is not None and record.store_id != older.store_id:
            tally.error(path, f"it is of store {record.store_id}, not of {older.store_id}")
            return None
        if older is not None:
            self._against(path, record, older, tally)
        return record

    def _against(self, path: Path, record: Record, older: Record, tally: _Tally) -> None:
        """Compare a record with the one that was published, and is still kept, before it."""
        for name in _RISING:
            if getattr(record, name) < getattr(older, name):
                tally.error(path, f"{name} is lower than in the record before")
        if record.number == older.number + 1 or older.number < 0:  # a bucket's island
            return
        floor = self._floor_now(tally)  # a vacuum raises it before it removes a record
        lost = floor.kept_between(older.number + 1, record.number)
        if lost is not None:
            seqs = f"{older.flushed_seq} to {record.flushed_seq}"
            gone = f"{lost[0]} to {lost[1]}"
            reason = f"records {gone}, before it, are lost; reads at seqs {seqs} may need them"
            tally.warn(path, reason)

    def _known_numbers(self, tally: _Tally) -> None:
        try:
            base_numbers.known(self._files, self._root)
        except UNREADABLE as error:
            tally.error(self._root / base_numbers.NAME, error)

    # files

    def _pins(self, pins: Iterable[Pin], tally: _Tally) -> None:
        for pin in distinct(pins).values():
            if pin not in tally.integrity.pins:
                tally.say(pin.path)
                for path, wrong in tally.integrity.damage(pin).items():
                    tally.error_once(path, wrong)
                for path, wrong in tally.integrity.twins(pin).items():
                    tally.error_once(path, f"the copy that other programs read: {wrong}")

    def _runs(self, record: Record, tally: _Tally) -> None:
        """Compare the key runs of a record's bases with the keys in their parts."""
        try:
            for path, wrong in tally.integrity.wrong_runs(record).items():
                tally.error(path, wrong)
        except UNREADABLE as error:
            tally.error(getattr(error, "path", self._manifests.path(record.number)), error)

    def _log(self, record: Record, tally: _Tally) -> None:
        tally.say("wal")
        self._mark(record, tally)
        self._epoch(record, tally)
        error = None
        for _ in range(LOG_ATTEMPTS):
            names = self._names_of_log()
            error = self._wrong_with_log(record)
            if error is None or self._has_moved(record):
                return
            if names == self._names_of_log():
                break
        tally.error(getattr(error, "path", "wal"), error)

    def _names_of_log(self) -> list[str]:
        """Return its files: an owner that begins writes one again and removes the old one."""
        with contextlib.suppress(OSError):
            return self._files.list(self._root / "wal")
        return []

    def _wrong_with_log(self, record: Record) -> Exception | None:
        try:
            chain_of(self._files, self._root, record, record.last_seq)
        except FileNotFoundError:
            return None  # nothing was ever committed, or a live owner removed a segment meanwhile
        except UNREADABLE as error:
            return error
        return None

    def _has_moved(self, record: Record) -> bool:
        """Say whether the owner may have recycled segments that this record still names."""
        with contextlib.suppress(*UNREADABLE):
            return self._manifests.newest().wal_floor != record.wal_floor
        return False  # the newest cannot be read

    def _epoch(self, record: Record, tally: _Tally) -> None:
        """An epoch is published before it has a segment: else the newest records are lost."""
        with contextlib.suppress(*UNREADABLE):  # or `_numbers`, `_record` named it
            epoch = epoch_of_log(self._files, self._root / "wal", record.store_id)
            if epoch > record.epoch and self._manifests.newest().epoch < epoch:
                reason = f"its epoch is {record.epoch}, the log is of epoch {epoch}"
                tally.error(self._manifests.path(record.number), f"{reason}: newer ones are lost")

    def _mark(self, record: Record, tally: _Tally) -> None:
        """A MARK that is gone is written by the next owner; till then readers walk the log."""
        wal = self._root / "wal"
        with contextlib.suppress(OSError):
            is_marked = read_mark(self._files, wal, bytes.fromhex(record.store_id)) is not None
            if not is_marked and find_segments(self._files, wal, bytes.fromhex(record.store_id)):
                tally.warn(wal / MARK_NAME, "missing or damaged; the next owner writes it")

    def _logged_pins(self, tally: _Tally) -> set[str]:
        """Check what frames above the record name: bulk commits, versions of plain tables.

        Return the folders of those datasets, and of the plain tables that they create.
        """
        try:
            _, lease, frames = newest_with_log(self._files, self._root, self._manifests)
        except UNREADABLE:
            return set()  # `_log` has named it
        with lease:
            found = list(named_by(frames))
            self._pins(found, tally)
            return {*(pin.folder for pin in found), *created_by(frames)}

    def _past(self, past: KeptPast, tally: _Tally, *, deep: bool) -> None:
        """Name what readers cannot read, if it is to be kept still after we found it."""
        tally.say("past")
        before, wrong = None, list[tuple[Path | None, str]]()
        for _ in range(LOG_ATTEMPTS):
            try:
                record, lease, frames = newest_with_log(self._files, self._root, self._manifests)
                with lease:
                    tags, kept = tags_of(record, frames), self._kept_records() if deep else ()
                    if before == (record.number, tags):
                        break
                    before = record.number, tags
                    wrong = [*past.unread_from(record, lease, tags, kept)]
            except UNREADABLE:
                return  # it is named already
            if not wrong:
                return
        for path, reason in wrong:
            tally.error(path or self._manifests.folder, reason)

    def _kept_records(self) -> list[Record]:
        return [record for _, record in readable(self._manifests, self._manifests.numbers())]

    def _times(self, record: Record, tally: _Tally) -> None:
        """Tell of commits ahead of our clock: later ones have times above theirs."""
        ahead_s = (record.last_time_us - self._site.now_us()) / 1e6
        if ahead_s > AHEAD_S_MAX:
            tally.warn(
                self._manifests.path(record.number),
                f"its newest commit is {timedelta(seconds=round(ahead_s))} ahead of this machine's"
                " clock: until the clock is there, nothing gets older, so no retention ends, and"
                " reads by time find what was before the clock was wrong",
            )

    def _refused(self, record: Record, tally: _Tally) -> None:
        """Tell of rows that Lance refuses: nothing is lost, but nothing of them is merged."""
        for storage in record.keyed:
            for each in storage.fallbacks:
                seqs = f"rows of seq {each.first_seq} to {each.last_seq}"
                tally.warn(
                    each.pin.path, f"Lance refuses {seqs} of {storage.folder}: {each.reason}"
                )

    def _drift(self, record: Record, logged: Collection[str], tally: _Tally) -> None:
        tally.say("drift")
        try:
            for _, external in external_versions_of(self._tables.external, record, logged):
                tally.findings.append(Finding(external.path, DRIFT, told(external)))
        except UNREADABLE as error:
            tally.warn("tables", f"external versions cannot be listed: {error}")

    def _names(self, tally: _Tally) -> None:
        """Tell of files that a clean-up by another program may delete, or whose name one did."""
        whole = [path for path, wrong in tally.integrity.files.items() if wrong is None]
        exposed, hidden = self._tables.names.lacking(whole)
        for paths, why in (
            (exposed, "no name of the store's own: a clean-up by another program may delete them"),
            (hidden, "no public name any more: other programs do not find them"),
        ):
            for path in paths[:1]:
                tally.warn(path, f"{_others(paths)} {why}; open the store once for writing")

    def _dead_jobs(self, tally: _Tally) -> None:
        with contextlib.suppress(*UNREADABLE):
            for seen in self._jobs.list():
                if not seen.is_running:
                    tally.warn(self._jobs.path(seen.id), told_of(seen))

    # rows

    def _rows(self, record: Record, storage: KeyedStorage, tally: _Tally) -> None:
        table = catalogs.owner_of(record.catalog, storage.incarnation)
        tally.done += sum(f"{storage.folder}/" in path for path in tally.integrity.files)
        try:
            self._history(record, storage, tally)
            self._base(table, storage, tally)
        except UNREADABLE as error:
            tally.error(getattr(error, "path", storage.folder), error)

    def _history(self, record: Record, storage: KeyedStorage, tally: _Tally) -> None:
        if storage.history is None:
            return
        folder, last = f"{storage.folder}/.history", 0
        for batch in self._tables.reader.open(storage.history).scan():
            seqs = batch.column(SEQ_COLUMN).to_numpy()
            tally.rows += len(seqs)
            if len(seqs) and (seqs[0] < last or (np.diff(seqs) < 0).any()):
                tally.error(folder, f"a seq below one before it, after seq {last}")
            last = int(seqs[-1]) if len(seqs) else last
        if last > record.flushed_seq:
            tally.error(folder, f"seq {last} is above the record's {record.flushed_seq}")

    def _base(self, table: TableDefinition, storage: KeyedStorage, tally: _Tally) -> None:
        if storage.base is None:
            return
        folder = f"{storage.folder}/base"
        table_schema = table_schema_of(catalogs.schema_by_id(table, storage.base_schema))
        opened = self._tables.reader.open(storage.base)
        names = list(table_schema.codec.names)
        parts = [table_schema.codec.codes(batch) for batch in opened.scan(names)]
        codes = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        tally.rows += len(codes)
        order = np.argsort(codes, kind="stable")
        places = np.flatnonzero(opened.live.bools())
        distinct_keys = newest_rows(
            table_schema.codec,
            codes,
            lambda at: table_schema.codec.columns(opened.take(places[at], names)),
        )
        if len(distinct_keys) != len(order):
            tally.error(folder, f"{len(order) - len(distinct_keys)} keys appear twice")
        for wrong in wrong_indexes(opened):
            tally.error(folder, wrong)
        # The incarnation may be one from before a truncate.
        loads = {step.id: step.versions for step in table.incarnations}
        if not storage.history_from and not loads[storage.incarnation]:
            self._fold(table, storage, table_schema, tally)

    def _fold(
        self,
        table: TableDefinition,
        storage: KeyedStorage,
        table_schema: TableSchema,
        tally: _Tally,
    ) -> None:
        """Compare base with what history says up to `merged_seq`."""
        runs = self._readers.history(table, storage, 0, storage.merged_seq, None)
        history = ReadLevels(table_schema, runs, None)
        merged = ReadLevels(table_schema, (), self._readers.base(table, storage))
        folded = KeyedReader(history, storage.merged_seq)
        base = KeyedReader(merged, storage.merged_seq)
        if sorted_rows(folded, table_schema) != sorted_rows(base, table_schema):
            tally.error(f"{storage.folder}/base", "it differs from the fold of its history")


def _others(paths: Sequence[str]) -> str:
    return "this file has" if len(paths) == 1 else f"this file and {len(paths) - 1} others have"


def told_of(seen: SeenJob) -> str:
    """Return the description of a dead job."""
    if seen.job is None:
        return "the record of a job that died before it was written, or is damaged"
    tables = ", ".join(seen.job.tables)
    what = f"{seen.job.kind} of {tables}, process {seen.job.pid} on {seen.job.host}"
    return f"a job that died: {what}; {len(seen.finished)} finished tasks can be published"


def chain_of(files: Files, root: Path, record: Record, last_seq: int) -> Chain:
    """Return the log from a record's floor on, which must reach `last_seq`."""
    return read_chain(
        files,
        root / "wal",
        store_id=bytes.fromhex(record.store_id),
        floor=SegmentNumber(record.wal_floor),
        last_seq=Seq(last_seq),
    )


def epoch_of_log(files: Files, directory: Path, store_id: str) -> int:
    """Return the highest epoch of the log's segments; 0 if there are none."""
    found = find_segments(files, directory, bytes.fromhex(store_id))
    return max((segment.epoch for segment in found if segment.header is not None), default=0)
