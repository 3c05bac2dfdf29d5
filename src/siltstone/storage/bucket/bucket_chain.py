"""Bucket chain: the records of a mirror, to those who read it as a store.

    newest    STORE, a list of the chain, the last record: 3 requests, and a lease 2 more
    newer     the record after it, asked for once a second at most; if it is there, the list
    number    that of the bucket's chain; a copy of an older record that a tag needs (an island)
              has the number of the store's record, far below them

A record is the store's, under the bucket's number and the writer of that, and without the commits
that the log of the store alone had. What it names is in the bucket. It publishes nothing.

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
from siltstone.formats import manifest
from siltstone.formats.backup import BackupFile
from siltstone.formats.bucket import BucketRecord
from siltstone.formats.manifest import Record
from siltstone.storage.bucket.bucket import Bucket, numbers_in
from siltstone.storage.bucket.bucket_files import BucketFiles
from siltstone.storage.bucket.bucket_leases import BucketLeases
from siltstone.storage.manifest.floor import Floor
from siltstone.storage.manifest.manifest_store import ATTEMPTS_MAX, Lease, ManifestStore

LOOK_S = 1.0
"""How long a reader takes what it saw for the newest record."""
_ISLAND = -(1 << 40)


class _SeenChain(msgspec.Struct, frozen=True):
    """The chain as it was listed, and its newest record."""

    numbers: tuple[int, ...]
    has_floor: bool
    newest: Record
    islands: tuple[BackupFile, ...]


class BucketChain(ManifestStore):
    """See the module. Any thread."""

    def __init__(
        self,
        root: Path,
        files: BucketFiles,
        leases: BucketLeases,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(files, root)
        self._bucket, self._leases = Bucket(files.objects), leases
        self._place, self._clock = root, clock
        self._seen: _SeenChain | None = None
        self._store_id, self._looked = "", -LOOK_S

    def path(self, number: int) -> Path:
        key = formats.record_key(number) if number > 0 else self._island(number).path
        return self._place / key

    def read(self, number: int) -> Record:
        if number <= 0:
            file = self._island(number)
            record = manifest.decode(self._bucket.whole(file.path), self._bucket.key_url(file.path))
            return msgspec.structs.replace(record, number=number)
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
        self._require_mark()
        return self._store_id

    def newer_record(self, after: Record) -> Record | None:
        now = self._clock()
        if now - self._looked < LOOK_S:
            return None
        self._looked = now
        seen = self._seen
        is_known = seen is not None and seen.newest.number > after.number
        if not is_known and self._bucket.find(after.number + 1) is None:
            return None
        newest = self.newest()
        return newest if newest.number > after.number else None

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
            RequestError: There is no mirror.
            ReplacedError: There is another store's by now.
        """
        for _ in range(ATTEMPTS_MAX):
            self._require_mark()
            keys = [head.key for head in self._bucket.objects.list_after(formats.RECORDS)]
            numbers = tuple(numbers_in(keys))
            if not numbers:
                raise RequestError(
                    f"{self._place} has no record yet: its first mirror did not end; run it again"
                )
            found = self._bucket.find(numbers[-1])
            if found is not None:
                seen = _SeenChain(numbers, formats.FLOOR in keys, _shown(found), found.islands)
                self._seen, self._looked = seen, self._clock()
                return seen
        raise BusyError(f"{self._place} changed {ATTEMPTS_MAX} times while it was read; try again")

    def _require_mark(self) -> None:
        """Look, once, whose mirror it is: the mark never changes."""
        if self._store_id:
            return
        mark = self._bucket.mark()
        if mark is None:
            raise RequestError(f"{self._place} has no mirror of a store")
        self._store_id = mark.store_id

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
    )


def _number_of_island(file: BackupFile) -> int:
    name = file.path.removeprefix(formats.ISLANDS).partition("-")[0]
    return _ISLAND + int(name)
