"""Mirror restore: creates a new store from a mirror in a bucket.

    choose a record ─▶ RESTORING ─▶ fetch the manifests and inventories of its pins ─▶ these name
    all files: fetch them side by side, each checked ─▶ what makes a store of them (`new_store`)

A file that an earlier try fetched is read and kept. The new store has the commits up to the seq of
the record. Its log has those that were shipped above the newest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import xxhash

from siltstone.errors import RequestError
from siltstone.failpoints import Failpoint, cross
from siltstone.formats import inventory, manifest
from siltstone.formats.bucket import BucketRecord, record_key
from siltstone.formats.inventory import InventoryFile
from siltstone.formats.log.log_object import LoggedGroup
from siltstone.formats.manifest import Pin, Record, pins_of
from siltstone.maintenance.backup.backup import Progress, named_by
from siltstone.maintenance.backup.new_store import NewStore, inside, settle
from siltstone.maintenance.backup.restore import Restored
from siltstone.maintenance.backup.sent_records import SentRecords
from siltstone.maintenance.backup.shipped_log import newest_with_shipped, until
from siltstone.maintenance.gc.sweep import distinct
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.files.copying import is_there, require_same
from siltstone.storage.files.files import Files, discard, refusals
from siltstone.storage.manifest.manifest_store import RESTORING
from siltstone.storage.objects.objects import Objects, side_by_side
from siltstone.storage.objects.server import PART_BYTES
from siltstone.storage.tables.store_tables import Tables


class MirrorRestorer:
    """Restores the mirror in a bucket; `tables` returns the tables of a directory."""

    def __init__(
        self,
        files: Files,
        objects: Objects,
        tables: Callable[[Path, Files], Tables],
        *,
        now_us: Callable[[], int],
        new_token: Callable[[], str],
    ) -> None:
        self._files, self._objects, self._tables = files, objects, tables
        self._bucket = Bucket(objects)
        self._store = NewStore(files, now_us=now_us, new_token=new_token)

    def run(
        self,
        target: Path,
        *,
        seq: int | None = None,
        at_us: int | None = None,
        tag: str | None = None,
        on_progress: Progress | None = None,
    ) -> Restored:
        """Restore one record into `target`, which must be absent, empty or half restored from it.

        Args:
            target: The new store's directory.
            seq: That of a record of the bucket, or of a commit that was shipped above the newest
                one. Default: what an earlier try began with, or else all that there is.
            at_us: Take the newest record whose last commit is at or before this time.
            tag: Take the record at the seq of this tag of the newest record.
            on_progress: See `backup.Progress`.

        Raises:
            RequestError: There is no such record, or `target` contains other files.
            CorruptionError: An object, which the message names, is damaged or missing. `target` is
                no store.
            BusyError: Another restore into `target` is running.
            UnavailableError: The server or the file system refuses; `target` is no store.
        """
        given = [each for each in (seq, at_us, tag) if each is not None]
        if len(given) > 1:
            raise RequestError("give a seq, a time or a tag to choose a record, and no two of them")
        with refusals(f"restore, {target}"):
            begun = None if given else self._begun(target)
            seq = seq if tag is None else self._bucket.seq_of(tag)
            chosen, groups = self._chosen(seq, at_us, begun)
            name = self._bucket.key_url(record_key(chosen.number))
            with self._store.entered(target, name):
                say = on_progress or (lambda *_: None)
                return self._restore(target, name, chosen, groups, say)

    def _chosen(
        self, seq: int | None, at_us: int | None, begun: int | None
    ) -> tuple[BucketRecord, list[LoggedGroup]]:
        """Return a record, and the commits of the log above it, if they are wanted."""
        newest, groups = newest_with_shipped(self._bucket)
        if begun is not None:
            return (newest, groups) if newest.number == begun else (self._bucket.read(begun), [])
        if at_us is None and seq is None:
            return newest, groups
        if seq is not None and groups and newest.seq < seq <= groups[-1].last_seq:
            return newest, until(groups, seq)
        return self._bucket.choose(seq, at_us), []

    def _begun(self, target: Path) -> int | None:
        """Return the record that an earlier try began with; the mirror may have gone on since."""
        sign = target / RESTORING
        if not self._files.exists(sign):
            return None
        name = self._files.read(sign).decode(errors="replace")
        known = {self._bucket.key_url(record_key(each)): each for each in self._bucket.numbers()}
        return known.get(name)

    def _restore(
        self,
        target: Path,
        name: str,
        chosen: BucketRecord,
        groups: Sequence[LoggedGroup],
        say: Progress,
    ) -> Restored:
        cross(Failpoint.RESTORE_BEFORE_PLAN)
        record = self._store.record_of(flushed(chosen.record))
        if not self._store.is_made(target, record):
            islands = [self._island(file.path) for file in chosen.islands]
            pins = [pin for each in (chosen.record, *islands) for pin in pins_of(each)]
            self._fetch_all(target, [*pins, *named_by(groups)], chosen.nbytes, say)
            SentRecords(self._files, target, self._objects.url).restored(chosen)
            self._store.make(target, record, islands, groups)
        say(name, chosen.nbytes, chosen.nbytes)
        seq = groups[-1].last_seq if groups else chosen.seq
        return Restored(str(target), name, seq, record.oldest_seq, chosen.files, chosen.nbytes)

    def _island(self, key: str) -> Record:
        return manifest.decode(self._bucket.whole(key), self._bucket.key_url(key))

    def _fetch_all(self, target: Path, named: Iterable[Pin], total: int, say: Progress) -> None:
        pins = list(distinct(named).values())
        folders: set[Path] = set()
        for _ in side_by_side(partial(self._fetch_names, target), pins):
            pass
        reader = self._tables(target, self._files).reader
        files = {file.path: file for pin in pins for file in reader.files(pin)}
        for path in files:
            folders.add(inside(target, path, self._bucket.key_url(path)).parent)
        for folder in sorted(folders):
            self._files.mkdir(folder)
        done = 0
        for file, _ in side_by_side(partial(self._fetch, target), files.values()):
            done += file.size
            say(file.path, done, total)
        settle(self._files, folders)

    def _fetch_names(self, target: Path, pin: Pin) -> None:
        """Fetch what names the files of a pin: its manifests, and its inventories."""
        self._fetch(target, InventoryFile(pin.path, pin.size, pin.xxh3))
        if pin.is_arrow:
            return
        names = [pin.inventory] if pin.inventory else []
        for name in names:
            names += [each for each in self._inventory(target, name) if each not in names]
        if pin.hidden:
            self._keep(target, pin.physical_path, self._bucket.whole(pin.physical_path))

    def _inventory(self, target: Path, name: str) -> tuple[str, ...]:
        """Fetch an inventory; return the names of those below it."""
        data = self._bucket.whole(name)
        found = inventory.decode(data, self._bucket.key_url(name))
        self._keep(target, name, data)
        return found.below

    def _fetch(self, target: Path, file: InventoryFile) -> None:
        """Have a file with the bytes that were written."""
        copy = inside(target, file.path, self._bucket.key_url(file.path))
        if is_there(self._files, copy, file):
            return
        if file.size <= PART_BYTES:
            data = self._bucket.whole(file.path)
            self._require_same(file, len(data), xxhash.xxh3_64(data).hexdigest())
            self._keep(target, file.path, data)
            return
        temporary = self._files.temporary(copy)
        try:
            self._fetch_parts(file, temporary)
            self._files.rename(temporary, copy)
        except BaseException:
            discard(self._files, temporary)
            raise

    def _fetch_parts(self, file: InventoryFile, temporary: Path) -> None:
        digest, offset = xxhash.xxh3_64(), 0
        self._files.mkdir(temporary.parent)
        out = self._files.open(temporary, new=True)
        try:
            while offset < file.size:
                part = self._objects.get_range(
                    file.path, offset, min(offset + PART_BYTES, file.size)
                )
                if part is None or not part.data:
                    break
                digest.update(part.data)
                out.pwrite(part.data, offset)
                offset += len(part.data)
            self._require_same(file, offset, digest.hexdigest())
            out.sync()
        finally:
            out.close()

    def _require_same(self, file: InventoryFile, size: int, xxh3: str) -> None:
        require_same(self._bucket.key_url(file.path), (size, xxh3), file)

    def _keep(self, target: Path, path: str, data: bytes) -> None:
        copy = inside(target, path, self._bucket.key_url(path))
        self._files.mkdir(copy.parent)
        self._files.replace(copy, data)


def flushed(record: Record) -> Record:
    """Return a record without the commits that its store's log has, which a bucket has not."""
    return msgspec.structs.replace(record, last_seq=record.flushed_seq)
