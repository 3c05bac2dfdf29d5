"""Bucket chain: the records of a mirror, to those who read it as a store.

    newest    a list of the chain, the last record: 2 requests, and a lease 2 more; STORE says
              whose mirror it is where there is no record yet
    newer     the record after it, asked for once a second at most; if it is there, the list; once
              a minute the list: the record after it may have been given up while this one slept
    number    that of the bucket's chain; a copy of an older record that a tag needs (an island)
              has the number of the store's record, far below them

A record is the store's, under the bucket's number and the writer of that, and without what it says
of the log of the store: the bucket has one of its own (`bucket_log`). What it names is in the
bucket. It publishes nothing.

Lock: none. What was seen is one immutable value, replaced in one assignment: two threads that look
at once look twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from siltstone.errors import BusyError, RequestError
from siltstone.formats import bucket as formats
from siltstone.formats.backup import BackupFile
from siltstone.formats.bucket import BucketRecord
from siltstone.formats.log.log_object import LogPlace
from siltstone.formats.manifest import Record
from siltstone.storage.bucket.bucket import Bucket, numbers_in
from siltstone.storage.bucket.bucket_files import BucketFiles
from siltstone.storage.bucket.bucket_leases import BucketLeases
from siltstone.storage.manifest.floor import Floor
from siltstone.storage.manifest.manifest_store import ATTEMPTS_MAX, Lease, ManifestStore
from siltstone.storage.wal.chain import FIRST_SEGMENT

LOOK_S = 1.0
"""How long a reader takes what it saw for the newest record."""
LIST_S = 60.0
"""How often a reader that looks for the next record lists the chain instead."""
_ISLAND = -(1 << 40)


class _SeenChain(msgspec.Struct, frozen=True):
    """The chain as it was listed, and its newest record."""

    numbers: tuple[int, ...]
    has_floor: bool
    newest: Record
    islands: tuple[BackupFile, ...]
    log_begin: LogPlace


class BucketChain(ManifestStore):
    """See the module. Any thread."""

    is_copy = True

    def __init__(
        self,
        root: Path,
        files: BucketFiles,
        leases: BucketLeases,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(files, root)
        self.objects, self._leases = files.objects, leases
        self._bucket = Bucket(self.objects)
        self._place, self.clock = root, clock
        self._seen: _SeenChain | None = None
        self._looked, self._listed = -LOOK_S, -LIST_S
        self.looks_now = 0
        """How often `look_now` was called: the log is looked at then, too."""

    def path(self, number: int) -> Path:
        key = formats.record_key(number) if number > 0 else self._island(number).path
        return self._place / key

    def read(self, number: int) -> Record:
        if number <= 0:
            file = self._island(number)
            record = self._bucket.island(file.path)
            return msgspec.structs.replace(record, number=number, wal_floor=FIRST_SEGMENT)
        found = self._bucket.find(number)
        if found is None:
            raise FileNotFoundError(str(self.path(number)))
        return _shown(found)

    def numbers(self, *, below_floor: bool = False) -> list[int]:
        seen = self._seen or self._list()
        if below_floor:
            return [*sorted(map(_number_of_island, seen.islands)), *seen.numbers]
        floor = self.kept() if seen.has_floor else Floor()
        return [number for number in seen.numbers if floor.keeps(number)]

    def kept(self) -> Floor:
        return self._bucket.floor()

    def newest(self) -> Record:
        return self._list().newest

    def store_id(self) -> str:
        return (self._seen or self._list()).newest.store_id

    @property
    def seen_seq(self) -> int:
        """The seq of the newest record that was seen; 0: none was."""
        return 0 if self._seen is None else self._seen.newest.flushed_seq

    def log_begin(self, record: Record) -> LogPlace:
        """Return where the log above a record that is leased begins."""
        seen = self._seen
        if seen is not None and seen.newest.number == record.number:
            return seen.log_begin
        return self._bucket.read(record.number).log_begin  # another thread has looked since

    def is_newest(self, number: int) -> bool:
        """Say whether no record after this one is there by now; a list is always asked for.

        The next number alone says too little: the vacuum may have given that record up.
        """
        later = self._bucket.objects.list_after(formats.RECORDS, formats.record_key(number))
        return not numbers_in([head.key for head in later])

    def newer_record(self, after: Record) -> Record | None:
        now = self.clock()
        if now - self._looked < LOOK_S:
            return None
        self._looked = now
        seen = self._seen
        is_known = seen is not None and seen.newest.number > after.number
        is_listed = is_known or now - self._listed >= LIST_S
        if not is_listed and self._bucket.find(after.number + 1) is None:
            return None
        newest = self.newest()
        return newest if newest.number > after.number else None

    def look_now(self) -> None:
        self._looked = -LOOK_S
        self.looks_now += 1

    def lease(self, number: int, *, below_floor: bool = False) -> Lease | None:
        """Lease a record; that of a tag is needed by each record of the chain, so the newest."""
        seen = self._seen or self._list()
        held = seen.newest.number if number <= 0 else number
        lock = self._leases.hold(held, below_floor=below_floor)
        return None if lock is None else Lease(number, lock)

    def sync(self) -> None:
        """Do nothing: an object that is there is durable."""

    def _list(self) -> _SeenChain:
        """Look at the whole chain.

        Raises:
            RequestError: There is no mirror, or no record of it yet.
        """
        for _ in range(ATTEMPTS_MAX):
            keys = [head.key for head in self._bucket.objects.list_after(formats.RECORDS)]
            numbers = tuple(numbers_in(keys))
            if not numbers:
                self._require_mark()
                raise RequestError(
                    f"{self._place} has no record yet: its first mirror did not end; run it again"
                )
            found = self._bucket.find(numbers[-1])
            if found is not None:
                seen = _SeenChain(
                    numbers, formats.FLOOR in keys, _shown(found), found.islands, found.log_begin
                )
                self._seen, self._looked = seen, self.clock()
                self._listed = self._looked
                return seen
        raise BusyError(f"{self._place} changed {ATTEMPTS_MAX} times while it was read; try again")

    def _require_mark(self) -> None:
        """Look whether a bucket without a record is a mirror at all."""
        if self._bucket.mark() is None:
            raise RequestError(f"{self._place} has no mirror of a store")

    def _island(self, number: int) -> BackupFile:
        seen = self._seen or self._list()
        for file in seen.islands:
            if _number_of_island(file) == number:
                return file
        raise FileNotFoundError(f"{self._place}: no record {number - _ISLAND} is kept for a tag")


def _shown(found: BucketRecord) -> Record:
    """Return the store's record as the bucket has it."""
    return msgspec.structs.replace(
        found.record,
        number=found.number,
        writer=found.writer,
        last_seq=found.record.flushed_seq,
        wal_floor=FIRST_SEGMENT,
    )


def _number_of_island(file: BackupFile) -> int:
    name = file.path.removeprefix(formats.ISLANDS).partition("-")[0]
    return _ISLAND + int(name)
