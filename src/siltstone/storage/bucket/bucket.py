"""Bucket: whose mirror is at a URL, and its chain of records; reads alone.

What is absent is an answer of the server, and never an error of the network (`Objects`). An object
that a record names is put before the record, so one that is absent, or is another one, is damage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from siltstone.errors import CorruptionError, RequestError, SnapshotExpiredError, no_such
from siltstone.formats import bucket as formats
from siltstone.formats import manifest
from siltstone.formats.bucket import BucketMark, BucketRecord
from siltstone.formats.manifest import Record
from siltstone.storage.manifest.floor import Floor, floor_in
from siltstone.storage.objects.objects import Objects

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Bucket:
    """See the module."""

    objects: Objects

    def key_url(self, key: str) -> str:
        return f"{self.objects.url}/{key}"

    def mark(self) -> BucketMark | None:
        """Return whose mirror it is; None: nobody's.

        Raises:
            CorruptionError, UnsupportedFormatError: It is damaged, or of another siltstone.
            UnavailableError: The server does not answer, or refuses.
        """
        found = self.objects.get(formats.MARK)
        if found is None:
            return None
        return formats.decode_mark(found.data, self.key_url(formats.MARK))

    def numbers(self) -> list[int]:
        """Return the numbers of the records that FLOOR keeps, ascending."""
        keys = [head.key for head in self.objects.list_after(formats.RECORDS)]
        floor = self.floor() if formats.FLOOR in keys else Floor()
        return [number for number in numbers_in(keys) if floor.keeps(number)]

    def floor(self) -> Floor:
        """Return which records are kept; before the first vacuum all.

        Raises:
            CorruptionError, UnsupportedFormatError: FLOOR is damaged, or of another siltstone.
        """
        found = self.objects.get(formats.FLOOR)
        if found is None:
            return Floor()
        return floor_in(found.data, Path(self.key_url(formats.FLOOR)))

    def require_kept(self, number: int, wanted: str) -> None:
        """Refuse a record that the bucket's vacuum gave up: its files may be gone.

        Raises:
            SnapshotExpiredError: It did; `wanted` is for the message.
        """
        if not self.floor().keeps(number):
            newest = self.choose(None, None)
            oldest = self.read(self.numbers()[0])
            raise SnapshotExpiredError(wanted, oldest.seq, newest.seq)

    def read(self, number: int) -> BucketRecord:
        """Return a record of the chain, of which a list had the key.

        Raises:
            CorruptionError, UnsupportedFormatError: It is damaged or gone; or of another siltstone.
        """
        return self._decoded(number, self.whole(formats.record_key(number)))

    def find(self, number: int) -> BucketRecord | None:
        """Return a record of the chain; None: there is none, or none any more.

        Raises:
            CorruptionError, UnsupportedFormatError: It is damaged; or of another siltstone.
        """
        found = self.objects.get(formats.record_key(number))
        return None if found is None else self._decoded(number, found.data)

    def _decoded(self, number: int, data: bytes) -> BucketRecord:
        key = formats.record_key(number)
        record = formats.decode_record(data, self.key_url(key))
        if record.number != number:
            raise CorruptionError(self.key_url(key), None, f"it holds record {record.number}")
        return record

    def whole(self, key: str) -> bytes:
        """Return the bytes of an object that a record names.

        Raises:
            CorruptionError: There is none.
        """
        found = self.objects.get(key)
        if found is None:
            raise CorruptionError(self.key_url(key), None, "the object is missing")
        return found.data

    def island(self, key: str) -> Record:
        """Return the record that serves a tag, by its key.

        Raises:
            CorruptionError: It is missing or damaged.
        """
        return manifest.decode(self.whole(key), self.key_url(key))

    def seq_of(self, tag: str) -> int:
        """Return the seq of a tag of the newest record.

        Raises:
            RequestError: There is no such tag, or no mirror.
        """
        known = {each.name: each.seq for each in self.choose(None, None).record.catalog.tags}
        if tag not in known:
            raise RequestError(no_such("tag", tag, known))
        return known[tag]

    def choose(
        self, seq: int | None, at_us: int | None, log_end: int | None = None
    ) -> BucketRecord:
        """Return the newest record, or that of a seq, or the newest one at or before a time.

        It reads a few records of the chain: seqs and times rise with the numbers. `log_end`: the
        last seq of the log above them, for the message.

        Raises:
            RequestError: There is no mirror; none of its records is at that seq, or as old.
        """
        numbers = self.numbers() if self.mark() is not None else []
        if not numbers:
            raise RequestError(f"{self.objects.url} has no mirror of a store")
        if seq is None and at_us is None:
            return self.read(numbers[-1])
        if at_us is not None:
            found = self._last(numbers, at_us, lambda record: record.record.last_time_us)
            if found is None:
                raise RequestError(f"{self.objects.url} has no record as old as that time")
            return found
        assert seq is not None
        found = self._last(numbers, seq, lambda record: record.seq)
        if found is None or found.seq != seq:
            raise self._no_record(numbers, seq, found, log_end)
        return found

    def _no_record(
        self, numbers: Sequence[int], seq: int, below: BucketRecord | None, log_end: int | None
    ) -> RequestError:
        """Say which records there are, if none is at a seq: a restore makes a store of a record.

        The one above may keep the seq as its past.
        """
        above = [number for number in numbers if below is None or number > below.number]
        ends = {self.read(numbers[0]).seq, self.read(numbers[-1]).seq}
        near = [] if below is None else [f"; the next one below is at {below.seq}"]
        if above:
            found = self.read(above[0])
            past = f": snapshot(seq={seq}) reads that past there"
            if found.oldest_seq > seq:
                past = f", and keeps no seq below {found.oldest_seq}"
            near.append(f"; the next one above is at {found.seq}{past}")
        if log_end is not None:
            near.append(f"; what was shipped above them ends at {log_end}")
        return RequestError(
            f"{self.objects.url} has no record at seq {seq}: its records are at seqs from"
            f" {min(ends)} to {max(ends)}{''.join(near)}"
        )

    def _last(
        self, numbers: Sequence[int], bound: int, value: Callable[[BucketRecord], int]
    ) -> BucketRecord | None:
        at = bisect_right(numbers, bound, key=lambda number: value(self.read(number)))
        return self.read(numbers[at - 1]) if at else None


def numbers_in(keys: Sequence[str]) -> list[int]:
    """Return the numbers of the records among the keys of a bucket, ascending."""
    found = [
        key.removeprefix(formats.RECORDS).removesuffix(_SUFFIX)
        for key in keys
        if key.startswith(formats.RECORDS) and key.endswith(_SUFFIX)
    ]
    return sorted(int(name) for name in found if len(name) == 20 and name.isdecimal())
