"""Mirror: records of a store, with all their files, as the chain of a bucket.

    lease the newest record ─▶ STORE, then the list of the bucket: is its newest record one of ours?
    ─▶ claim (`claim.py`) ─▶ upload the files that are missing (`upload.py`) ─▶ note the record in
    `mirrors/` ─▶ put the bucket's next record if absent: the commit point ─▶ FLOOR: is it kept?

What was uploaded before a crash serves the next run: a first run, the next one and one a week later
are the same code. Without the record, all of it is garbage. A mirror that goes on (`following.py`)
knows what the bucket has, and neither lists nor claims again.

A mirror whose claim was taken may sleep and go on. It put nothing above a record of the new epoch:
its own number is taken, or was deleted with all others that FLOOR gives up, which it reads after
its put. Then it ends. What the log alone has is not in the bucket.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Protocol

import msgspec

from siltstone.errors import (
    BusyError,
    CorruptionError,
    RequestError,
    SiltstoneError,
    UnavailableError,
)
from siltstone.formats import bucket as formats
from siltstone.formats.bucket import BucketRecord
from siltstone.formats.log.log_object import LoggedGroup, LogPlace
from siltstone.formats.manifest import Record
from siltstone.maintenance.backup.backup import Progress
from siltstone.maintenance.backup.bucket_vacuum import is_due
from siltstone.maintenance.backup.claim import (
    Claims,
    FoundMark,
    require_nothing_else,
    require_of,
)
from siltstone.maintenance.backup.leased_records import LeasedRecords, lease
from siltstone.maintenance.backup.sent_records import SentRecords
from siltstone.maintenance.backup.shipped_log import (
    above,
    has_commits,
    newest_with_shipped,
)
from siltstone.maintenance.backup.upload import Uploaded, Uploader
from siltstone.maintenance.gc.sweep import go_on
from siltstone.storage.bucket.bucket import Bucket, numbers_in
from siltstone.storage.files.files import refusals
from siltstone.storage.objects.log.claim import take_over
from siltstone.storage.objects.log.log import ObjectLog
from siltstone.storage.objects.objects import Objects, Taken
from siltstone.storage.objects.server import ObjectHead
from siltstone.storage.site import Site, held

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
class _SeenBucket:
    """A bucket as it was looked at: whose it is, its newest record, the objects that matter now."""

    mark: FoundMark | None
    newest: BucketRecord | None = None
    there: Mapping[str, int] = field(default_factory=dict)
    is_vacuum_due: bool = False

    def lacks(self, source: LeasedRecords) -> bool:
        """Say whether a source is not yet in the bucket as its newest record, with all files."""
        if self.newest is None or not has_all_of(self.newest.record, source.record):
            return True
        return any(self.there.get(key) != size for key, size in source.sizes.items())


class ShippedLog(Protocol):
    """The log in the bucket, if this process ships it: `maintenance.shipping.shipper.Shipper`."""

    def floor(self, seq: int) -> LogPlace | None:
        """Return where the log goes on above a record that ends at `seq`; None: not known."""
        ...

    def published(self, record: BucketRecord) -> None:
        """Hear of a record that is in the bucket."""
        ...


class Mirrorer:
    """Mirrors the store of a site. `probe` is asked before the first put, and names the server.

    `vacuum` vacuums the bucket, which is claimed then, if it was not vacuumed for a while. `step`
    is called between any two steps; what it raises ends the mirror there, and the next one goes on.
    """

    def __init__(
        self,
        site: Site,
        objects: Objects,
        probe: Callable[[Objects], str],
        *,
        vacuum: Callable[[], object] | None = None,
        step: Callable[[], object] = go_on,
    ) -> None:
        self.site, self.vacuum, self.step = site, vacuum, step
        self.log: ShippedLog | None = None
        self.bucket, self.objects = Bucket(objects), objects
        self.claims = Claims(site, objects, probe)
        self.sent = SentRecords(site.files, site.root, objects.url)
        self.uploader = Uploader(site.files, site.root, objects, step)

    @held
    def run(
        self,
        *,
        take: bool = False,
        adopt: bool = False,
        on_progress: Progress | None = None,
    ) -> Mirrored:
        """Have the newest record and its files in the bucket; nothing is put that is there.

        Args:
            take: Take the claim of a mirror elsewhere, which is gone.
            adopt: Go on with the mirror that this store was restored from.
            on_progress: See `backup.Progress`.

        Raises:
            RequestError: The bucket has the mirror of another store, or something else; or a record
                that this store does not know, as after one of two copies of it was mirrored.
            CorruptionError: A file of the store is damaged, and named; or a record of the bucket.
            BusyError: Another mirror is running, or has claimed the bucket; or others won every
                race.
            UnavailableError: The server refuses, or does not answer. The record may be there.
            ReplacedError: Another store is at the path by now, or none.
        """
        with refusals(f"no mirror at {self.objects.url}"), ExitStack() as held:
            source = lease(self.site, held, with_log=True)
            seen = self._look(source, adopt=adopt)
            if seen.newest is not None and not (adopt or seen.lacks(source)):
                self._note(seen.newest)
                return self.result(seen.newest, source, Uploaded())
            session = held.enter_context(self.session(source, seen, take=take, adopt=adopt))
            say = on_progress or (lambda _what, _done, _all: None)
            is_due = seen.is_vacuum_due and self.vacuum is not None
            made = session.publish(source, say, anyway=is_due)
            if is_due and self.vacuum is not None:
                self.vacuum()
            return made

    @contextlib.contextmanager
    def session(
        self,
        source: LeasedRecords,
        seen: _SeenBucket | None = None,
        *,
        take: bool = False,
        adopt: bool = False,
    ) -> Generator[MirrorSession]:
        """Claim the bucket, look at it, and release it at the end.

        Raises:
            SiltstoneError: As `run`.
        """
        seen = seen or self._look(source, adopt=adopt)  # a wrong URL leaves nothing behind
        with self.sent.locked():
            claimed, seen = self._claimed(source, seen, take=take, adopt=adopt)
            try:
                self._take_log(seen, adopts=adopt)
                yield MirrorSession(self, claimed, seen)
            finally:
                self.claims.end(claimed)

    def _claimed(
        self, source: LeasedRecords, seen: _SeenBucket | None, *, take: bool, adopt: bool
    ) -> tuple[FoundMark, _SeenBucket]:
        for _ in range(ATTEMPTS_MAX):
            seen = seen or self._look(source, adopt=adopt)
            if seen.mark is not None:
                self.claims.require_free(seen.mark, is_taken=take)
            claimed = self.claims.claim(source.record.store_id, seen.mark)
            if claimed is not None:
                if seen.mark is None:
                    self._clear()
                return claimed, seen
            seen = None  # another one claimed it since it was looked at
        raise BusyError(f"{self.objects.url}: {ATTEMPTS_MAX} claims lost their race; try again")

    def _clear(self) -> None:
        """Delete what a probe left that did not end."""
        probed = self.objects.of("probe")
        for prefix in _LEFT_BY_A_PROBE:
            probed.delete([head.key for head in probed.list_after(prefix)])

    def _look(self, source: LeasedRecords, *, adopt: bool) -> _SeenBucket:
        """Look at the bucket: STORE first, so that a claim finds whether the rest still holds."""
        url, store_id = self.objects.url, source.record.store_id
        mark = self.claims.look()
        there, chain = self._listed(source, is_new=mark is None)
        if mark is None:
            if formats.MARK in there:
                raise BusyError(f"{url}: another mirror began just now; try again")
            return _SeenBucket(None)
        if formats.MARK not in there:
            key_url = self.bucket.key_url(formats.MARK)
            raise CorruptionError(key_url, None, "the object is missing")
        numbers = numbers_in([head.key for head in chain])
        newest = self.bucket.read(numbers[-1]) if numbers else None
        if adopt and mark.mark.store_id != store_id:
            self._require_origin(newest)
            self._require_log_end(newest_with_shipped(self.bucket)[1], newest)
        else:
            require_of(url, mark, store_id, self.site.root)
        if newest is not None:
            self.require_ours(newest, source.record)
        return _SeenBucket(mark, newest, there, is_due(chain))

    def _listed(
        self, source: LeasedRecords, *, is_new: bool
    ) -> tuple[dict[str, int], list[ObjectHead]]:
        """Return the sizes of the objects that a source needs, and the chain."""
        needed = source.sizes
        there: dict[str, int] = {}
        chain = list[ObjectHead]()
        for head in self.objects.list_after(""):
            if head.key in needed or head.key == formats.MARK:
                there[head.key] = head.size
            elif head.key.startswith(formats.RECORDS):
                chain.append(head)
            elif is_new:
                require_nothing_else(self.objects.url, [head.key], _LEFT_BY_A_PROBE)
        if is_new and formats.MARK not in there:
            keys = [*there, *(head.key for head in chain)]
            require_nothing_else(self.objects.url, keys, _LEFT_BY_A_PROBE)
        return there, chain

    def require_ours(self, newest: BucketRecord, ours: Record) -> None:
        """Check that the bucket's newest record is one that this store published.

        Two copies of a store share its id, and the one that is mirrored second must not go on.
        `ours` may have been read before: another process may have published since, and mirrored it.

        Raises:
            RequestError: It is not.
            BusyError: It is, and newer than `ours`, which would bring the bucket back.
        """
        number, writer = newest.copied
        if self.sent.is_origin(newest):
            return
        if self.sent.has(newest.copied) or self._wrote(number, writer):
            if number <= ours.number:
                return
            if number <= self.site.manifests.newest().number:
                raise BusyError(
                    f"{self.objects.url} has record {number} of {self.site.root}, which another"
                    f" mirror of this store published after {ours.number} was read; try again"
                )
        raise RequestError(
            f"{self.objects.url} diverged at record {newest.number}: it is of record {number} by"
            f" {writer}, at seq {newest.seq}, which {self.site.root} does not know; another copy of"
            " the store was mirrored there, or this one was rolled back: choose another prefix"
        )

    def _require_origin(self, newest: BucketRecord | None) -> None:
        if newest is None or not self.sent.is_origin(newest):
            raise RequestError(
                f"{self.site.root} was not restored from the newest record of {self.objects.url}:"
                " only a store that was, and mirrored nothing since, goes on with its mirror;"
                " restore it again, or choose another prefix"
            )

    def _require_log_end(self, groups: list[LoggedGroup], newest: BucketRecord | None) -> None:
        """Refuse a log that has commits which this store was not restored with.

        They were acknowledged as shipped, and a record of another line would drop them.
        """
        found = groups[-1].last_seq if groups else 0 if newest is None else newest.seq
        if found != self.sent.seq:
            raise RequestError(
                f"{self.objects.url} has shipped commits up to seq {found}, and {self.site.root}"
                f" was restored up to seq {self.sent.seq}: restore it again, or choose another"
                " prefix"
            )

    def _take_log(self, seen: _SeenBucket, *, adopts: bool) -> None:
        """Check that the log in the bucket is of this store's line; end it if another one's was.

        Who shipped before, elsewhere, acknowledges nothing more. What was acknowledged is no part
        of a record of another line.

        Raises:
            RequestError: It has commits that this store does not have.
        """
        log = ObjectLog(self.objects)
        if next(log.names(""), None) is None:
            return
        if not adopts:
            self._require_line()
            if seen.mark is not None and self.claims.is_here(seen.mark):
                return

        def newest() -> BucketRecord:
            return self.bucket.read(self.bucket.numbers()[-1])

        token = bytes.fromhex(self.site.new_token())
        taken = take_over(log, lambda: newest().log_begin, token)
        if adopts:
            groups = (each for frame in taken.frames for each in log.groups(frame))
            self._require_log_end(above(newest(), groups, self.objects.url) or [], newest())
        else:
            self._require_line()

    def _require_line(self) -> None:
        groups = newest_with_shipped(self.bucket)[1]  # first: what is there was durable here before
        if groups and not has_commits(self.site, groups[-1]):
            raise RequestError(
                f"{self.objects.url} diverged: its log has commits up to seq"
                f" {groups[-1].last_seq} that {self.site.root} does not have; another copy of the"
                " store was shipped there, or this one was rolled back: choose another prefix"
            )

    def _wrote(self, number: int, writer: str) -> bool:
        with contextlib.suppress(FileNotFoundError, CorruptionError):
            return self.site.manifests.read(number).writer == writer
        return False

    def owe(self) -> None:
        """Note that the store ended before the bucket had all of it."""
        with contextlib.suppress(SiltstoneError), self.sent.locked():
            self.sent.owe()

    def _note(self, newest: BucketRecord) -> None:
        """Note what the bucket has, unless another mirror of this machine notes it now."""
        with contextlib.suppress(BusyError), self.sent.locked():
            self.sent.found(newest)

    def result(self, made: BucketRecord, source: LeasedRecords, uploaded: Uploaded) -> Mirrored:
        return Mirrored(
            url=self.objects.url,
            seq=made.seq,
            time_us=made.record.last_time_us,
            record=made.number,
            copied=made.record.number,
            files=made.files,
            nbytes=made.nbytes,
            uploaded=uploaded.files,
            uploaded_bytes=uploaded.nbytes,
            behind=source.behind or 0,
            requests=sum(self.objects.counts.by_kind().values()),
            lost_tags=source.lost_tags,
        )


class MirrorSession:
    """A claimed bucket, of which this one knows what it has. One thread."""

    def __init__(self, mirrorer: Mirrorer, claimed: FoundMark, seen: _SeenBucket) -> None:
        self._mirrorer, self._bucket = mirrorer, mirrorer.bucket
        self._objects, self._sent, self._site = mirrorer.objects, mirrorer.sent, mirrorer.site
        self.epoch = claimed.mark.epoch
        self.newest, self._there = seen.newest, seen.there

    def publish(self, source: LeasedRecords, say: Progress, *, anyway: bool = False) -> Mirrored:
        """Have a source in the bucket as its newest record.

        `anyway`: publish a record of this claim, also if it says nothing new.

        Raises:
            SiltstoneError: As `Mirrorer.run`. RequestError also if the claim was taken.
        """
        uploaded: Uploaded | None = None
        for _ in range(ATTEMPTS_MAX):
            if self.newest is not None:
                self._require_held(self.newest)
                self._mirrorer.require_ours(self.newest, source.record)
            if uploaded is None:
                uploaded = self._mirrorer.uploader.run(source, self._there, say)
                self._there = source.sizes
            found = self.newest
            is_said = found is not None and has_all_of(found.record, source.record)
            if found is not None and is_said and not (anyway and found.epoch != self.epoch):
                self._sent.found(found)
                self._tell(found)
                return self._mirrorer.result(found, source, uploaded)
            made = self._put_record(source, 1 if found is None else found.number + 1)
            if made is not None:
                self.newest = made
                self._sent.landed(made)
                self._tell(made)
                return self._mirrorer.result(made, source, uploaded)
            self.newest = self._bucket.read(self._bucket.numbers()[-1])
        raise BusyError(f"{self._objects.url}: {ATTEMPTS_MAX} publishes lost their race; try again")

    def _log_floor(self, seq: int) -> tuple[int, int]:
        """Return epoch and number where the log above `seq` begins: never below the newest's."""
        newest, log = self.newest, self._mirrorer.log
        known = (0, 0) if newest is None else (newest.wal_epoch, newest.wal_floor)
        found = None if log is None else log.floor(seq)
        return known if found is None or found.number <= known[1] else found

    def _tell(self, made: BucketRecord) -> None:
        """Let the log go on from a record; what is not deleted now is by the next one."""
        if self._mirrorer.log is not None:
            with contextlib.suppress(UnavailableError):
                self._mirrorer.log.published(made)

    def _put_record(self, source: LeasedRecords, number: int) -> BucketRecord | None:
        """Put the next record; None: another one has its number."""
        wal_epoch, wal_floor = self._log_floor(source.record.flushed_seq)
        made = BucketRecord(
            number=number,
            writer=self._site.new_token(),
            time_us=self._site.now_us(),
            record=source.record,
            islands=tuple(file for file, _ in source.island_files),
            files=len(source.files),
            nbytes=source.nbytes,
            wal_epoch=wal_epoch,
            wal_floor=wal_floor,
            epoch=self.epoch,
        )
        self._mirrorer.step()
        self._site.manifests.require_ours(source.record)
        self._sent.add(made.copied)
        done = self._objects.put_new(formats.record_key(number), formats.encode_record(made))
        if isinstance(done, Taken):
            return None
        if not self._bucket.floor().keeps(number):  # it was there, and a vacuum deleted it
            raise self._fenced()
        return made

    def _require_held(self, newest: BucketRecord) -> None:
        if newest.epoch > self.epoch:
            raise self._fenced()

    def _fenced(self) -> RequestError:
        return RequestError(
            f"{self._objects.url} was taken by {self._mirrorer.claims.taken_by()}; this mirror ends"
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
