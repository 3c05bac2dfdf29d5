"""Verify: reads what a store is made of and names what is not as it was written; changes nothing.

    quick   FLOOR, every record, the pins and inventories that they and the log name, the log's
            chain, MARK; what strangers wrote
    deep    and every byte of every file, every row: keys of base are unique, seqs of history ascend
            within their range, base is the fold of history where history reaches back so far

An error is damage. A warning is what the next owner sets right, or what was lost without loss of
rows. Drift is what strangers wrote past siltstone; nothing reads it. `maintenance.repair` says what
can be done about each.

A damaged file ends no other check. What vacuum deletes meanwhile is not missed: a record is leased
while it is checked, the newest to the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from siltstone.engine import catalog as catalogs
from siltstone.engine.read_union import KeyedReader
from siltstone.engine.reader import Readers, plain_folder
from siltstone.engine.shape import Shape, shape_of
from siltstone.errors import SiltstoneError
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.keys import newest_rows
from siltstone.formats.manifest import KeyedStorage, Pin, Record, Table
from siltstone.formats.schema import SEQ_COLUMN
from siltstone.maintenance.backup import Progress, named_by, newest_with_log
from siltstone.maintenance.drift import strangers_of, told
from siltstone.maintenance.sweep import Sweep, distinct, pins_of
from siltstone.storage.chain import read_chain
from siltstone.storage.files import Files
from siltstone.storage.inventories import check
from siltstone.storage.manifest_store import ManifestStore
from siltstone.storage.segments import MARK_NAME, find_segments, read_mark
from siltstone.storage.tables import Tables
from siltstone.units import SegmentNumber, Seq

ERROR, WARNING, DRIFT = "error", "warning", "drift"
_RISING = ("epoch", "last_seq", "flushed_seq", "wal_floor", "oldest_seq")
_UNREADABLE = (SiltstoneError, OSError, ValueError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written: where, how bad, what."""

    path: str
    severity: str
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification looked at and found; it is sound when there is no error."""

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
        """Return it as plain values."""
        return {**asdict(self), "is_sound": self.is_sound}

    def __str__(self) -> str:
        kind = "deep" if self.is_deep else "quick"
        head = (
            f"{'sound' if self.is_sound else 'DAMAGED'} ({kind}): {self.records} records,"
            f" {self.pins} versions, {self.files} files, {self.rows} rows read"
        )
        return "\n".join([head, *map(str, self.findings)])


@dataclass(slots=True)
class _Tally:
    """What was seen so far."""

    records: int = 0
    pins: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)

    done: int = 0
    total: int = 0

    def error(self, path: object, message: object) -> None:
        self.findings.append(Finding(str(path), ERROR, str(message)))

    def warn(self, path: object, message: object) -> None:
        self.findings.append(Finding(str(path), WARNING, str(message)))


class Verifier:
    """See the module. Any process may run it, beside a live owner too."""

    def __init__(
        self,
        *,
        files: Files,
        root: Path,
        manifests: ManifestStore,
        tables: Tables,
        readers: Readers,
    ) -> None:
        self._files, self._root = files, root
        self._manifests, self._tables, self._readers = manifests, tables, readers
        self._floor = 0

    def run(self, *, deep: bool = False, on_progress: Progress | None = None) -> Verified:
        """Verify; `on_progress` hears what is next, how many files are done, and of how many.

        Each counts twice when it is deep: for its bytes and for its rows. That is about right.
        """
        tally, hear = _Tally(), on_progress or (lambda _what, _done, _all: None)
        tally.total = len(Sweep(self._files, self._root).listed) * (2 if deep else 1)

        def say(what: str) -> None:
            hear(what, min(tally.done, tally.total), tally.total)

        newest: Record | None = None
        with ExitStack() as leases:
            for number in self._numbers(tally):
                say(f"record {number}")
                lease = self._manifests.lease(number, below_floor=True)
                if lease is None:
                    continue  # vacuumed since the listing
                record = self._record(number, newest, tally)
                if record is not None:
                    self._pins(record, tally, say, deep=deep)
                    leases.close()
                    newest = record
                leases.enter_context(lease)
            if newest is not None:
                self._log(newest, tally, say)
                self._logged_pins(tally, say, deep=deep)
                self._drift(newest, tally, say)
                for table, storage in _keyed(newest) if deep else ():
                    say(storage.folder)
                    self._rows(newest, table, storage, tally)
            tally.done = tally.total
            say("done")
        return Verified(
            deep,
            tally.records,
            len(tally.pins),
            len(tally.files),
            tally.rows,
            tuple(tally.findings),
        )

    def _numbers(self, tally: _Tally) -> list[int]:
        try:
            floor = self._manifests.floor()
        except _UNREADABLE as error:
            tally.error(getattr(error, "path", self._manifests.folder), error)
            floor = 0
        self._floor = floor
        numbers = self._manifests.numbers(below_floor=True)
        if not [number for number in numbers if number >= floor]:
            tally.error(self._manifests.folder, f"there is no record at or above FLOOR {floor}")
        return numbers

    def _record(self, number: int, older: Record | None, tally: _Tally) -> Record | None:
        tally.records += 1
        path = self._manifests.path(number)
        try:
            record = self._manifests.read(number)
        except _UNREADABLE as error:
            tally.error(path, error)
            return None
        if older is not None:
            self._against(path, record, older, tally)
        return record

    def _against(self, path: Path, record: Record, older: Record, tally: _Tally) -> None:
        """Compare a record with the one that was published, and is still kept, before it."""
        if record.store_id != older.store_id:
            tally.error(path, f"it is of store {record.store_id}, not of {older.store_id}")
        for name in _RISING:
            if getattr(record, name) < getattr(older, name):
                tally.error(path, f"{name} is lower than in the record before")
        if record.number > older.number + 1 and older.number >= self._floor:
            gone = f"{older.number + 1} to {record.number - 1}"
            tally.warn(path, f"records {gone}, before it, are not there; it needs none of them")

    # files

    def _pins(
        self, record: Record, tally: _Tally, say: Callable[[str], None], *, deep: bool
    ) -> None:
        for pin in distinct(pins_of(record)).values():
            if pin.path not in tally.pins:
                say(pin.path)
                tally.pins.add(pin.path)
                self._pin(pin, tally, deep=deep)

    def _pin(self, pin: Pin, tally: _Tally, *, deep: bool) -> None:
        try:
            files = self._tables.files(plain_folder(pin), pin)
        except _UNREADABLE as error:
            tally.error(getattr(error, "path", pin.path), error)
            return
        for file in files:
            if file.path not in tally.files:
                tally.files.add(file.path)
                tally.done += 1
                self._file(file, tally, deep=deep)

    def _file(self, file: InventoryFile, tally: _Tally, *, deep: bool) -> None:
        if not deep:
            self._size(file.path, file.size, tally)
            return
        try:
            check(self._files, self._root, file)
        except _UNREADABLE as error:
            tally.error(file.path, error)

    def _size(self, path: str, size: int, tally: _Tally) -> None:
        try:
            found = self._files.size(self._root / path)
        except OSError as error:
            tally.error(path, error)
            return
        if found != size:
            tally.error(path, f"{found} bytes, {size} were written; restore it")

    def _log(self, record: Record, tally: _Tally, say: Callable[[str], None]) -> None:
        say("wal")
        self._mark(record, tally)
        try:
            read_chain(
                self._files,
                self._root / "wal",
                store_id=bytes.fromhex(record.store_id),
                floor=SegmentNumber(record.wal_floor),
                last_seq=Seq(record.last_seq),
            )
        except FileNotFoundError:
            return  # nothing was ever committed, or a live owner recycled a segment meanwhile
        except _UNREADABLE as error:
            newest = self._manifests.newest()
            if newest.wal_floor == record.wal_floor:
                tally.error(getattr(error, "path", "wal"), error)

    def _mark(self, record: Record, tally: _Tally) -> None:
        """A MARK that is gone is written by the next owner; till then readers may see less."""
        wal = self._root / "wal"
        with contextlib.suppress(OSError):
            is_marked = read_mark(self._files, wal, bytes.fromhex(record.store_id)) is not None
            if not is_marked and find_segments(self._files, wal, bytes.fromhex(record.store_id)):
                tally.warn(wal / MARK_NAME, "missing or damaged; the next owner writes it")

    def _logged_pins(self, tally: _Tally, say: Callable[[str], None], *, deep: bool) -> None:
        """Check what frames above the record name: bulk commits, versions of plain tables."""
        try:
            _, lease, frames = newest_with_log(self._files, self._root, self._manifests)
        except _UNREADABLE:
            return  # `_log` has named it
        with lease:
            for pin in distinct(named_by(frames)).values():
                if pin.path not in tally.pins:
                    say(pin.path)
                    tally.pins.add(pin.path)
                    self._pin(pin, tally, deep=deep)

    def _drift(self, record: Record, tally: _Tally, say: Callable[[str], None]) -> None:
        say("drift")
        try:
            for _, stranger in strangers_of(self._tables, record):
                tally.findings.append(Finding(stranger.path, DRIFT, told(stranger)))
        except _UNREADABLE as error:
            tally.warn("tables", f"strangers' versions cannot be listed: {error}")

    # rows

    def _rows(self, record: Record, table: Table, storage: KeyedStorage, tally: _Tally) -> None:
        tally.done += sum(f"{storage.folder}/" in path for path in tally.files)
        try:
            self._history(record, storage, tally)
            self._base(table, storage, tally)
        except _UNREADABLE as error:
            tally.error(getattr(error, "path", storage.folder), error)

    def _history(self, record: Record, storage: KeyedStorage, tally: _Tally) -> None:
        if storage.history is None:
            return
        folder, last = f"{storage.folder}/.history", 0
        for batch in self._tables.open(folder, storage.history).scan():
            seqs = batch.column(SEQ_COLUMN).to_numpy()
            tally.rows += len(seqs)
            if len(seqs) and (seqs[0] < last or (np.diff(seqs) < 0).any()):
                tally.error(folder, f"a seq below one before it, after seq {last}")
            last = int(seqs[-1]) if len(seqs) else last
        if last > record.flushed_seq:
            tally.error(folder, f"seq {last} is above the record's {record.flushed_seq}")

    def _base(self, table: Table, storage: KeyedStorage, tally: _Tally) -> None:
        if storage.base is None:
            return
        folder = f"{storage.folder}/base"
        shape = shape_of(catalogs.schema_by_id(table, storage.base_schema))
        opened = self._tables.open(folder, storage.base)
        names = list(shape.codec.names)
        parts = [shape.codec.codes(batch) for batch in opened.scan(names)]
        codes = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        tally.rows += len(codes)
        order = np.argsort(codes, kind="stable")
        distinct_keys = newest_rows(
            shape.codec, codes, lambda at: shape.codec.keys(opened.take(at, names))
        )
        if len(distinct_keys) != len(order):
            tally.error(folder, f"{len(order) - len(distinct_keys)} keys come twice")
        steps = {
            step.id: step for step in table.incarnations
        }  # it may be one from before a truncate
        if not storage.history_from and not steps[storage.incarnation].versions:
            self._fold(table, storage, shape, tally)

    def _fold(self, table: Table, storage: KeyedStorage, shape: Shape, tally: _Tally) -> None:
        """Compare base with what history says up to `merged_seq`."""
        run = self._readers.history(table, storage, 0, storage.merged_seq, None)
        folded = KeyedReader(shape, () if run is None else (run,), None, storage.merged_seq)
        base = KeyedReader(shape, (), self._readers.base(table, storage), storage.merged_seq)
        if _sorted(folded, shape) != _sorted(base, shape):
            tally.error(f"{storage.folder}/base", "it is not the fold of its history")


def _sorted(reader: KeyedReader, shape: Shape) -> list[str]:
    """Return every row as text, sorted: NaN equals itself there."""
    return sorted(
        repr(row) for batch in reader.scan(shape.arrow.names) for row in batch.to_pylist()
    )


def _keyed(record: Record) -> Iterator[tuple[Table, KeyedStorage]]:
    for storage in record.keyed:
        yield catalogs.owner_of(record.catalog, storage.incarnation), storage
