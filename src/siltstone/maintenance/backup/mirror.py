"""Mirror: one record of a store, with all its files, as the newest record of a bucket.

    lease the newest record ─▶ list the bucket ─▶ STORE (first time: probe, put if absent) ─▶ is its
    newest record one of ours? ─▶ upload the files that are missing, each checked, side by side ─▶
    note the record in `mirrors/` ─▶ put the bucket's next record if absent: the commit point

A file of a store is written once, under a name that no other ever has, and an object is put whole
or not at all. So one with the key and the size is the file, and what was uploaded before a crash
serves the next run: a first run, the next one and one a week later are the same code. Without the
record, all of it is garbage. Two mirrors of one store meet at the commit point: one loses, looks
whose record won, and puts its own above it.

What the log alone has is not in the bucket. Nothing is ever deleted there yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import msgspec
import xxhash

from siltstone.errors import BusyError, CorruptionError, RequestError
from siltstone.formats import bucket as formats
from siltstone.formats import manifest
from siltstone.formats.backup import BackupFile
from siltstone.formats.bucket import BucketMark, BucketRecord
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.manifest import Record, pins_of
from siltstone.maintenance.backup.backup import (
    Progress,
    islands_of,
    newest_with_log,
    tags_of,
)
from siltstone.maintenance.backup.sent_records import SentRecords
from siltstone.maintenance.gc.sweep import distinct
from siltstone.storage.bucket.bucket import Bucket, numbers_in
from siltstone.storage.files.copying import require_same
from siltstone.storage.files.files import Files, refusals
from siltstone.storage.objects.objects import Objects, Taken, side_by_side
from siltstone.storage.objects.server import PART_BYTES, Streamed
from siltstone.storage.site import Site, held
from siltstone.storage.tables.kept_names import place

ATTEMPTS_MAX = 16
_LEFT_BY_A_PROBE = ("probe/", "now/")


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What a bucket holds now: its record, and the recovery point, the commit `seq` at `time_us`.

    `behind` commits are in the store's log alone. `uploaded` files are new in the bucket, out of
    `files`. `lost_tags` are tags whose seqs the store can no longer read.
    """

    url: str
    seq: int
    time_us: int
    record: int
    copied: int
    files: int
    nbytes: int
    uploaded: int
    uploaded_bytes: int
    behind: int
    requests: int
    lost_tags: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"seq {self.seq} in {self.url}, record {self.record}: {self.files} files,"
            f" {self.nbytes} bytes; {self.uploaded} files, {self.uploaded_bytes} bytes of them are"
            f" new; {self.behind} commits are in the store's log alone"
        )


@dataclass(frozen=True, slots=True)
class _LeasedRecords:
    """What is copied: a leased record, and those of tags; the log has `behind` commits more."""

    record: Record
    islands: tuple[Record, ...]
    lost_tags: tuple[str, ...]
    behind: int
    files: tuple[InventoryFile, ...]

    @property
    def island_files(self) -> tuple[tuple[BackupFile, bytes], ...]:
        encoded = [(formats.island_key(each), manifest.encode(each)) for each in self.islands]
        return tuple(
            (BackupFile(key, len(data), xxhash.xxh3_64_hexdigest(data)), data)
            for key, data in encoded
        )


@dataclass(frozen=True, slots=True)
class _Uploaded:
    files: int
    nbytes: int


class Mirrorer:
    """Mirrors the store of a site. `probe` is asked before the first put, and names the server."""

    def __init__(self, site: Site, objects: Objects, probe: Callable[[Objects], str]) -> None:
        self.site = site
        self._bucket, self._objects, self._probe = Bucket(objects), objects, probe
        self._files, self._root = site.files, site.root
        self._sent = SentRecords(site.files, site.root, objects.url)

    @held
    def run(self, *, on_progress: Progress | None = None) -> Mirrored:
        """Have the newest record and its files in the bucket; nothing is put that is there.

        Args:
            on_progress: See `backup.Progress`.

        Raises:
            RequestError: The bucket has the mirror of another store, or something else; or a record
                that this store does not know, as after one of two copies of it was mirrored.
            CorruptionError: A file of the store is damaged, and named; or a record of the bucket.
            BusyError: Another mirror is running, or others won every race.
            UnavailableError: The server refuses, or does not answer. The record may be there.
            ReplacedError: Another store is at the path by now, or none.
        """
        say = on_progress or (lambda _what, _done, _all: None)
        with refusals(f"no mirror at {self._objects.url}"), ExitStack() as held:
            source = self._source(held)
            there = self._look(source.record.store_id)
            held.enter_context(self._sent.locked())
            if formats.MARK not in there:
                self._take(source.record.store_id, there)
            return self._publish(source, there, say)

    def _source(self, held: ExitStack) -> _LeasedRecords:
        record, lease, frames = newest_with_log(self._files, self._root, self.site.manifests)
        held.enter_context(lease)
        islands, lost = islands_of(self.site.manifests, record, tags_of(record, ()), held)
        pins = distinct(pin for each in (record, *islands) for pin in pins_of(each)).values()
        reader = self.site.tables.reader
        files = {file.path: file for pin in pins for file in reader.files(pin)}
        behind = frames[-1].last_seq - record.flushed_seq if frames else 0
        return _LeasedRecords(record, islands, lost, behind, tuple(files.values()))

    def _look(self, store_id: str) -> dict[str, int]:
        """Return the objects of the prefix and their sizes, if it is empty or of this store."""
        there = {head.key: head.size for head in self._objects.list_after("")}
        if formats.MARK in there:
            self._require_mark(store_id)
            return there
        foreign = [key for key in there if not key.startswith(_LEFT_BY_A_PROBE)]
        if foreign:
            url = self._objects.url
            raise RequestError(f"{url} is neither empty nor a mirror: it has {min(foreign)!r}")
        return there

    def _take(self, store_id: str, there: Mapping[str, int]) -> None:
        """Mark the prefix as of this store, once the server has shown what it can."""
        server = self._probe(self._objects)
        mark = BucketMark(store_id, self.site.new_token(), self.site.now_us(), server)
        self._objects.put_new(formats.MARK, formats.encode_mark(mark))
        self._require_mark(store_id)
        self._objects.of("probe").delete(there)

    def _require_mark(self, store_id: str) -> None:
        found, url = self._bucket.mark(), self._objects.url
        if found is None:
            raise CorruptionError(self._bucket.key_url(formats.MARK), None, "the object is missing")
        if found.store_id != store_id:
            raise RequestError(
                f"{url} has the mirror of store {found.store_id}, and {self._root} is store"
                f" {store_id}: choose another prefix"
            )

    def _publish(self, source: _LeasedRecords, there: Mapping[str, int], say: Progress) -> Mirrored:
        uploaded: _Uploaded | None = None
        numbers = numbers_in(list(there))
        for _ in range(ATTEMPTS_MAX):
            newest = self._bucket.read(numbers[-1]) if numbers else None
            if newest is not None:
                self._require_ours(newest, source.record)
            if uploaded is None:
                uploaded = self._upload(source, there, say)
            if newest is not None and has_all_of(newest.record, source.record):
                return self._result(newest, source, uploaded)
            made = self._put_record(source, newest.number + 1 if newest is not None else 1)
            if made is not None:
                return self._result(made, source, uploaded)
            numbers = self._bucket.numbers()
        raise BusyError(f"{self._objects.url}: {ATTEMPTS_MAX} publishes lost their race; try again")

    def _require_ours(self, newest: BucketRecord, ours: Record) -> None:
        """Check that the bucket's newest record is one that this store published.

        Two copies of a store share its id, and the one that is mirrored second must not go on.
        """
        number, writer = newest.copied
        if number <= ours.number and (self._sent.has(newest.copied) or self._wrote(number, writer)):
            return
        raise RequestError(
            f"{self._objects.url} diverged at record {newest.number}: it is of record {number} by"
            f" {writer}, at seq {newest.seq}, which {self._root} does not know; another copy of the"
            " store was mirrored there, or this one was rolled back: choose another prefix"
        )

    def _wrote(self, number: int, writer: str) -> bool:
        with contextlib.suppress(FileNotFoundError, CorruptionError):
            return self.site.manifests.read(number).writer == writer
        return False

    def _put_record(self, source: _LeasedRecords, number: int) -> BucketRecord | None:
        """Put the next record; None: another one has its number."""
        islands = tuple(file for file, _ in source.island_files)
        made = BucketRecord(
            number=number,
            writer=self.site.new_token(),
            time_us=self.site.now_us(),
            record=source.record,
            islands=islands,
            files=len(source.files),
            nbytes=sum(file.size for file in source.files),
        )
        self.site.manifests.require_ours(source.record)
        self._sent.add(made.copied)
        done = self._objects.put_new(formats.record_key(number), formats.encode_record(made))
        if isinstance(done, Taken):
            return None
        self._sent.landed(made.copied)
        return made

    def _upload(self, source: _LeasedRecords, there: Mapping[str, int], say: Progress) -> _Uploaded:
        new = [file for file in source.files if there.get(file.path) != file.size]
        islands = [each for each in source.island_files if there.get(each[0].path) != each[0].size]
        total = sum(file.size for file in new) + sum(file.size for file, _ in islands)
        works = [(file.path, file.size, partial(self._upload_file, file)) for file in new]
        works += [
            (file.path, file.size, partial(self._objects.put, file.path, data))
            for file, data in islands
        ]
        done = 0
        for (path, size, _), _result in side_by_side(lambda work: work[2](), works):
            done += size
            say(path, done, total)
        return _Uploaded(len(works), total)

    def _upload_file(self, file: InventoryFile) -> object:
        """Put a file whose bytes are those that were written."""
        parts = partial(checked_parts, self._files, self._root, file)
        if file.size <= PART_BYTES:
            return self._objects.put(file.path, b"".join(parts()))
        return self._objects.put(file.path, Streamed(file.size, parts))

    def _result(self, made: BucketRecord, source: _LeasedRecords, uploaded: _Uploaded) -> Mirrored:
        return Mirrored(
            url=self._objects.url,
            seq=made.seq,
            time_us=made.record.last_time_us,
            record=made.number,
            copied=made.record.number,
            files=made.files,
            nbytes=made.nbytes,
            uploaded=uploaded.files,
            uploaded_bytes=uploaded.nbytes,
            behind=source.behind,
            requests=sum(self._objects.counts.by_kind().values()),
            lost_tags=source.lost_tags,
        )


def has_all_of(copied: Record, newest: Record) -> bool:
    """Say whether a newer record says nothing new: one is published whenever an owner begins."""
    return newest == msgspec.structs.replace(
        copied,
        number=newest.number,
        writer=newest.writer,
        epoch=newest.epoch,
        time_us=newest.time_us,
        wal_floor=newest.wal_floor,
        gc_horizon_us=newest.gc_horizon_us,
    )


def checked_parts(files: Files, root: Path, expected: InventoryFile) -> Iterator[bytes]:
    """Yield the bytes of a file; if they are not those expected, raise before the end.

    Raises:
        CorruptionError: The file is missing or damaged.
        UnavailableError: The file system refuses.
    """
    path = root / expected.path
    digest, offset = xxhash.xxh3_64(), 0
    with refusals(f"{path} cannot be read"):
        try:
            file = files.open(place(files, root, expected.path), write=False)
        except FileNotFoundError as error:
            raise CorruptionError(path, None, "the file is missing") from error
        with closing(file):
            while chunk := file.pread(PART_BYTES, offset):
                digest.update(chunk)
                offset += len(chunk)
                yield chunk
    require_same(path, (offset, digest.hexdigest()), expected)
