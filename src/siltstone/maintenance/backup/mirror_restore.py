"""Mirror restore: creates a new store from a mirror in a bucket.

    choose a record ─▶ RESTORING ─▶ lease it ─▶ fetch the manifests and inventories of its pins ─▶
    these name all files: fetch them side by side, each checked ─▶ note which record it was ─▶ what
    makes a store of them (`new_store`)

A file that an earlier try fetched is read and kept. The new store has the commits up to the seq of
the record. Its log has those that were shipped above the newest one.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path

import msgspec

from siltstone.errors import (
    CorruptionError,
    RequestError,
    SiltstoneError,
    UnavailableError,
)
from siltstone.failpoints import Failpoint, cross
from siltstone.formats import bucket as formats
from siltstone.formats.bucket import BucketLease, BucketRecord, record_key
from siltstone.formats.log.log_object import LoggedGroup
from siltstone.formats.manifest import Pin, Record, pins_of
from siltstone.maintenance.backup.backup import Progress, named_by
from siltstone.maintenance.backup.fetched import Fetched
from siltstone.maintenance.backup.new_store import NewStore, settle
from siltstone.maintenance.backup.restore import Restored
from siltstone.maintenance.backup.sent_records import SentRecords
from siltstone.maintenance.backup.shipped_log import newest_with_shipped, until
from siltstone.maintenance.gc.sweep import distinct
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.files.files import Files, refusals
from siltstone.storage.manifest.manifest_store import RESTORING
from siltstone.storage.objects.objects import Objects, side_by_side
from siltstone.storage.tables.store_tables import Tables

LEASE_S = 86_400.0
"""A restore that is killed keeps its record in the bucket for so long."""


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
        self._bucket, self._new_token = Bucket(objects), new_token
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
            RequestError: There is no such record, or `target` contains other files, or what an
                earlier try made up to another seq.
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
            with self._store.entered(target, name), self._leased(chosen):
                say = on_progress or (lambda *_: None)
                done = self._restore(target, name, chosen, groups, say)
                wanted = groups[-1].last_seq if groups else chosen.seq
                if given and done.seq != wanted:
                    raise RequestError(
                        f"{target} was restored up to seq {done.seq}, not {wanted}: restore"
                        " into another directory, or without a choice to end what was begun"
                    )
                return done

    def _chosen(
        self, seq: int | None, at_us: int | None, begun: int | None
    ) -> tuple[BucketRecord, list[LoggedGroup]]:
        """Return a record, and the commits of the log above it, if they are wanted."""
        if at_us is not None or (seq is not None and seq <= self._bucket.choose(None, None).seq):
            return self._bucket.choose(seq, at_us), []
        newest, groups = newest_with_shipped(self._bucket)
        if begun is not None and newest.number != begun:
            return self._bucket.read(begun), []
        if seq is None:
            return newest, groups
        if groups and newest.seq < seq <= groups[-1].last_seq:
            return newest, until(groups, seq)
        log_end = groups[-1].last_seq if groups else None
        return self._bucket.choose(seq, None, log_end), []

    @contextlib.contextmanager
    def _leased(self, chosen: BucketRecord) -> Generator[None]:
        """Keep the bucket's vacuum from the files of a record; without the right to put, hope."""
        key = f"{formats.LEASES}{self._new_token()}"
        lease = BucketLease(chosen.number, LEASE_S, f"restore on {platform.node()}")
        with contextlib.suppress(UnavailableError):
            self._objects.put(key, formats.encode_lease(lease))
        try:
            self._bucket.require_kept(chosen.number, f"seq {chosen.seq} of the mirror")
            yield
        except CorruptionError:
            self._bucket.require_kept(chosen.number, f"seq {chosen.seq} of the mirror")
            raise
        finally:
            with contextlib.suppress(SiltstoneError):
                self._objects.delete([key])

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
        seq = groups[-1].last_seq if groups else chosen.seq
        record = self._store.record_of(flushed(chosen.record))
        sent = SentRecords(self._files, target, self._objects.url)
        if self._store.is_made(target, record):
            seq = sent.seq  # the log has gone on since that try
        else:
            islands = [self._bucket.island(file.path) for file in chosen.islands]
            pins = [pin for each in (chosen.record, *islands) for pin in pins_of(each)]
            self._fetch_all(target, [*pins, *named_by(groups)], chosen.nbytes, say)
            sent.restored(chosen, seq)
            self._store.make(target, record, islands, groups)
        say(name, chosen.nbytes, chosen.nbytes)
        return Restored(str(target), name, seq, record.oldest_seq, chosen.files, chosen.nbytes)

    def _fetch_all(self, target: Path, named: Iterable[Pin], total: int, say: Progress) -> None:
        fetched = Fetched(self._files, self._bucket, target)
        pins = list(distinct(named).values())
        for _ in side_by_side(fetched.names, pins):
            pass
        reader = self._tables(target, self._files).reader
        files = {file.path: file for pin in pins for file in reader.files(pin)}
        folders = {fetched.place(path).parent for path in files}
        for folder in sorted(folders):
            self._files.mkdir(folder)
        done = 0
        for file, _ in side_by_side(fetched.file, files.values()):
            done += file.size
            say(file.path, done, total)
        settle(self._files, folders)


def flushed(record: Record) -> Record:
    """Return a record without the commits that its store's log has, which a bucket has not."""
    return msgspec.structs.replace(record, last_seq=record.flushed_seq)
