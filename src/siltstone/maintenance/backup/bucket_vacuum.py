"""Bucket vacuum: gives up old records of a mirror, and deletes what no record needs.

    a record of this claim is the newest ─▶ read the chain ─▶ FLOOR, by a put if it is unchanged ─▶
    list the leases ─▶ delete the records that FLOOR gives up and nobody leases ─▶ list the bucket:
    delete what neither a record that stays needs, nor a frame of the log, nor any record of the
    store, after a grace period; and nothing that readers may have of frames that are deleted

It is a part of the mirror that has claimed the bucket, so nothing is published meanwhile. A mirror
whose claim was taken may still publish, or delete, later:

- its record would have a number that is taken, as one of the new claim is above it, or that FLOOR
  has given up, which it reads after its put;
- what it deletes is dead for ever: files of no record, neither here nor in the store, are never
  named again, as the store names each file once.

Ages are differences of the server's own times. `now` is that of the newest object that this vacuum
has seen, so it is late at most, and more is kept. A lease counts until a minute after its time.

The records that stay are chosen as in the store (`FloorPlanner`): those of the retention, thinned,
so that each of their seqs can be read; what tags need is in every record (`islands`).

Lock: the claim.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from siltstone.errors import CorruptionError
from siltstone.formats import bucket as formats
from siltstone.formats.bucket import BucketRecord
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Pin, Record, pins_of
from siltstone.maintenance.backup.backup import named_by, newest_with_log
from siltstone.maintenance.backup.fetched import Fetched
from siltstone.maintenance.backup.shipped_log import read_above
from siltstone.maintenance.gc.floor_planner import FloorPlanner
from siltstone.maintenance.gc.sweep import distinct, go_on
from siltstone.maintenance.thinning import BOUNDS, Bounds
from siltstone.storage.bucket.bucket import Bucket, numbers_in
from siltstone.storage.files.files import Files, RealFiles
from siltstone.storage.manifest.floor import Floor, floor_in, text_of
from siltstone.storage.manifest.manifest_store import existing
from siltstone.storage.objects.log.log import ObjectLog
from siltstone.storage.objects.objects import Objects, side_by_side
from siltstone.storage.objects.server import ObjectHead
from siltstone.storage.site import Site
from siltstone.storage.tables.store_tables import Tables

GRACE_S = 86_400.0
LATE_S = 60.0
INTERVAL_S = 3_600.0
BATCH = 256
_LEASED_MAX = 64  # each takes a file descriptor
_FILES = ("commits/", "inventory/", formats.ISLANDS, "tables/")


@dataclass(frozen=True, slots=True)
class BucketVacuumed:
    """What a vacuum of a bucket deleted; the lowest record that stays; how many leases it met."""

    floor: int
    records: int
    objects: int
    nbytes: int
    leases: int


@dataclass
class _Clock:
    """The server's time: at least that of the newest object that was seen."""

    now: float = 0.0

    def hear(self, heads: Iterable[ObjectHead]) -> Iterator[ObjectHead]:
        for head in heads:
            self.now = max(self.now, head.modified)
            yield head


class BucketVacuum:
    """Vacuums the bucket that this process has claimed. `tables` returns those of a directory."""

    def __init__(
        self,
        site: Site,
        objects: Objects,
        tables: Callable[[Path, Files], Tables],
        *,
        retention_s: float,
        bounds: Bounds = BOUNDS,
        step: Callable[[], object] = go_on,
    ) -> None:
        self._site, self._objects, self._tables = site, objects.of("vacuum"), tables
        self._bucket = Bucket(self._objects)
        self._retention_s, self._bounds, self._step = retention_s, bounds, step

    def run(self, *, grace_s: float = GRACE_S) -> BucketVacuumed:
        """Vacuum. The newest record is one of this claim: see `MirrorSession.publish`.

        Args:
            grace_s: Objects that nothing needs stay for this time: a log may name them yet.

        Raises:
            UnavailableError: The server refuses, or does not answer; only garbage was deleted.
            CorruptionError: A record, or what names its files, is damaged; nothing was deleted.
        """
        clock = _Clock()
        with tempfile.TemporaryDirectory(prefix="siltstone-names-") as folder:
            names = _Names(
                self._site, self._tables, Fetched(RealFiles(), self._bucket, Path(folder))
            )
            chain = list(clock.hear(self._objects.list_after(formats.RECORDS)))
            floor = self._raise_floor(chain, clock, names)
            if floor is None:
                return BucketVacuumed(0, 0, 0, 0, 0)
            self._step()
            leased = self._leases(clock)
            records = dict(_numbered(chain))
            stay = [n for n in records if floor.keeps(n) or n in leased]
            dead = [head for n, head in records.items() if n not in stay]
            known = self._records(stay)
            needed = names.needed_by(known)  # before a record goes: it may be damaged
            since = _read_since(known, records, leased)
            self._step()
            self._objects.delete(head.key for head in dead)
            count, nbytes = self._sweep(needed, clock, grace_s, since)
        return BucketVacuumed(floor.number, len(dead), count, nbytes, len(leased))

    # the floor

    def _raise_floor(
        self, chain: Sequence[ObjectHead], clock: _Clock, names: _Names
    ) -> Floor | None:
        """Write FLOOR, if it rises, and return it; None: another vacuum wrote it meanwhile."""
        found = self._objects.get(formats.FLOOR)
        url = Path(self._bucket.key_url(formats.FLOOR))
        seen = Floor() if found is None else floor_in(found.data, url)
        times = {n: head.modified for n, head in _numbered(chain) if seen.keeps(n)}
        records = [_as_of_the_bucket(each, times[each.number]) for each in self._records(times)]
        now_us = int(clock.now * 1e6)
        planner = FloorPlanner(names.files, now_us, self._retention_s, self._bounds)
        tags = records[-1].catalog.tags
        floor = planner.plan(seen, records, tags)
        if floor == seen:
            return floor
        done = self._objects.put_over(formats.FLOOR, text_of(floor), found and found.etag)
        return None if done is None else floor

    def _records(self, numbers: Iterable[int]) -> list[BucketRecord]:
        found = dict(side_by_side(self._bucket.read, numbers))
        return [found[number] for number in sorted(found)]

    # who needs what

    def _leases(self, clock: _Clock) -> set[int]:
        """Return the records that readers lease; leases that are over are deleted."""
        heads = list(clock.hear(self._objects.list_after(formats.LEASES)))
        leased, over = set[int](), list[str]()
        for head, found in side_by_side(lambda head: self._objects.get(head.key), heads):
            if found is None:
                continue
            held = formats.decode_lease(found.data, self._bucket.key_url(head.key))
            if found.head.modified + held.ttl_s + LATE_S > clock.now:
                leased.add(held.record)
            else:
                over.append(head.key)
        self._objects.delete(over)
        return leased

    # deleting

    def _sweep(
        self, needed: set[str], clock: _Clock, grace_s: float, since: float
    ) -> tuple[int, int]:
        """Delete the objects of tables that nothing needs; return how many, and their bytes."""
        count = nbytes = 0
        batch: list[str] = []
        for head in clock.hear(self._objects.list_after("")):
            is_needed = head.key in needed or not head.key.startswith(_FILES)
            is_read = head.modified >= since
            if is_needed or is_read or head.modified > clock.now - grace_s:
                continue
            batch.append(head.key)
            count, nbytes = count + 1, nbytes + head.size
            if len(batch) >= BATCH:
                self._delete(batch)
        self._delete(batch)
        return count, nbytes

    def _delete(self, batch: list[str]) -> None:
        self._step()
        self._objects.delete(batch)
        batch.clear()


def is_due(chain: Sequence[ObjectHead]) -> bool:
    """Say whether a chain was not vacuumed for a while: by its own times, without a clock."""
    if len(chain) < 2:
        return False
    floor = next((head.modified for head in chain if head.key == formats.FLOOR), None)
    since = min(head.modified for head in chain) if floor is None else floor
    return max(head.modified for head in chain) - since >= INTERVAL_S


def _read_since(
    records: Sequence[BucketRecord], heads: Mapping[int, ObjectHead], leased: set[int]
) -> float:
    """Return since when what readers have of a log that is deleted was put; `inf`: there is none.

    Above a record that is leased, and not the newest, they may have read frames, whose names nobody
    has by now. Of the two records of the store below it, the lower one was in the bucket when the
    upper one was begun, and the leased one was not made yet; and so none of these frames.
    """
    read = next((each for each in records[:-1] if each.number in leased), None)
    if read is None:
        return math.inf
    upper = max((each.record.number for each in _below(records, read.record.number)), default=0)
    lower = [heads[each.number].modified for each in _below(records, upper)]
    return max(lower, default=-math.inf)


def _below(records: Sequence[BucketRecord], number: int) -> Iterator[BucketRecord]:
    return (each for each in records if each.record.number < number)


def _numbered(chain: Iterable[ObjectHead]) -> Iterator[tuple[int, ObjectHead]]:
    for head in chain:
        for number in numbers_in([head.key]):
            yield number, head


def _as_of_the_bucket(found: BucketRecord, modified: float) -> Record:
    """Return the store's record with the number that it has in the bucket, and the time there."""
    return msgspec.structs.replace(found.record, number=found.number, time_us=int(modified * 1e6))


@dataclass
class _Names:
    """Which files pins need: by what the store has of them, or else by what the bucket has."""

    site: Site
    tables: Callable[[Path, Files], Tables]
    fetched: Fetched
    _opened: Tables | None = field(default=None, init=False)

    def files(self, pin: Pin) -> list[InventoryFile]:
        """Return the files of a version; see `FloorPlanner`."""
        try:
            return self.site.tables.reader.files(pin)
        except CorruptionError:  # the store's vacuum took them
            return self._fetched([pin]).reader.files(pin)

    def needed_by(self, records: Sequence[BucketRecord]) -> set[str]:
        """Return the objects that records of the bucket need, and the files of the store's own.

        What a frame of the bucket's log names may be in no record: the store flushed, merged and
        vacuumed it while an older record was uploaded.
        """
        found = {file.path for each in records for file in each.islands}
        islands = [self.fetched.bucket.island(key) for key in found]
        pins = distinct(
            pin for each in (*(r.record for r in records), *islands) for pin in pins_of(each)
        )
        log = ObjectLog(self.fetched.bucket.objects)
        logged = distinct(named_by(read_above(records[-1], log)))  # nothing else is published now
        needed = self._needed(list(pins.values())) | self._needed(list(logged.values()))
        return found | needed | self._local()

    def _needed(self, pins: Sequence[Pin]) -> set[str]:
        try:
            return self.site.tables.paths.needed(pins)
        except CorruptionError:
            return self._fetched(pins).paths.needed(pins)

    def _fetched(self, pins: Iterable[Pin]) -> Tables:
        for _ in side_by_side(self.fetched.names, pins):
            pass
        if self._opened is None:
            self._opened = self.tables(self.fetched.target, self.fetched.files)
        return self._opened

    def _local(self) -> set[str]:
        """Return the files of all records of the store, and of its log.

        A later record of the bucket may need them, or a frame of its log, however old it is.
        """
        site = self.site
        _, newest, frames = newest_with_log(site.files, site.root, site.manifests)
        with newest:  # what the log names is there meanwhile
            found = site.tables.paths.needed(distinct(named_by(frames)).values())
        numbers = self.site.manifests.numbers(below_floor=True)
        for first in range(0, len(numbers), _LEASED_MAX):
            found |= self._needed_here(numbers[first : first + _LEASED_MAX])
        return found

    def _needed_here(self, numbers: Sequence[int]) -> set[str]:
        """Return the files of some records, which are leased meanwhile."""
        manifests = self.site.manifests
        with ExitStack() as held:
            leases = (manifests.lease(number, below_floor=True) for number in numbers)
            kept = [held.enter_context(each).number for each in leases if each is not None]
            records = existing(manifests, kept)
            pins = distinct(pin for record in records for pin in pins_of(record))
            return self.site.tables.paths.needed(pins.values())
