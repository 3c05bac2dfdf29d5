"""Shipped log: the commits that a bucket has above its newest record.

Records are published, and frames below them deleted, while it is read. So after the last frame the
newest record is looked at again: if it is another one by now, all is read anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from siltstone.errors import BusyError, CorruptionError
from siltstone.formats.bucket import BucketRecord
from siltstone.formats.log import group
from siltstone.formats.log.log_object import LoggedGroup
from siltstone.formats.manifest import Record
from siltstone.maintenance.backup.backup import newest_with_log
from siltstone.storage.bucket.bucket import Bucket
from siltstone.storage.bucket.line_above import LineAbove
from siltstone.storage.objects.log.log import LogWalk, ObjectLog, walking
from siltstone.storage.site import Site
from siltstone.units import Seq

ATTEMPTS_MAX = 16


def above(
    record: BucketRecord, groups: Iterable[LoggedGroup], url: str
) -> list[LoggedGroup] | None:
    """Return the commits of a log that are above a record.

    None: they are of another line.

    Raises:
        CorruptionError: The record that has commits between is gone.
    """
    line = LineAbove(record.seq, record.record.last_time_us, url)
    found = [each for each in groups if line.takes(each)]
    return None if line.is_other else found


def newest_with_shipped(bucket: Bucket) -> tuple[BucketRecord, list[LoggedGroup]]:
    """Return the newest record, and the commits above it, which are held in memory.

    Raises:
        RequestError: There is no mirror.
        CorruptionError: An object is damaged, or gone.
        BusyError: Records were published faster than this process could read the log.
        UnavailableError: The server does not answer, or refuses.
    """
    record = bucket.choose(None, None)
    for _ in range(ATTEMPTS_MAX):
        failure: CorruptionError | None = None
        groups: list[LoggedGroup] = []
        try:
            groups = read_above(record, ObjectLog(bucket.objects))
        except CorruptionError as error:
            failure = error
        before, record = record, bucket.choose(None, None)
        if before.number == record.number:
            if failure is not None:
                raise failure
            return record, groups
    raise BusyError(f"{bucket.objects.url}: the mirror went on {ATTEMPTS_MAX} times; try again")


def has_commits(site: Site, last: LoggedGroup) -> bool:
    """Say whether a store has the commits that a log in a bucket ends with, or had them.

    They are compared with those of its own log, or else by the time of the last one: by the record
    that ends there, or what it knows of its past. What is known no more counts as its own.

    Raises:
        CorruptionError: The log of the store is damaged, or its past.
        BusyError: The owner goes on faster than this process can read.
    """
    record, lease, frames = newest_with_log(site.files, site.root, site.manifests)
    with lease:
        if last.last_seq > record.flushed_seq:
            seqs = last.first_seq, last.last_seq
            return any(
                (own.first_seq, own.last_seq) == seqs and own.payload == last.payload
                for own in frames
            )
        head, _ = group.decode(last.payload)
        time_us = head.time_us + last.last_seq - last.first_seq
        return time_us == (_time_of(site, record, last.last_seq) or time_us)


def _time_of(site: Site, record: Record, seq: int) -> int | None:
    """Return the time of a commit that a record has flushed; None: not known any more."""
    if seq == record.flushed_seq:
        return record.last_time_us
    if record.commits is None:
        return None
    wanted = pc.field("seq") == seq
    opened = site.tables.reader.open(record.commits)
    for batch in opened.scan(["seq", "time"], prefilter=wanted):
        found = batch.filter(pc.equal(batch.column("seq"), pa.scalar(seq, pa.int64())))
        if found.num_rows:
            return found.column("time").cast(pa.int64())[0].as_py()
    return None


def until(groups: Sequence[LoggedGroup], seq: int) -> list[LoggedGroup]:
    """Return the commits up to a seq that the groups reach; the last group may be cut for it."""
    found = [each for each in groups if each.last_seq <= seq]
    if not found or found[-1].last_seq < seq:
        cut = next(each for each in groups if each.last_seq > seq)
        payload = group.first_of(cut.payload, seq - cut.first_seq + 1)
        found.append(LoggedGroup(cut.first_seq, Seq(seq), memoryview(payload)))
    return found


def read_above(record: BucketRecord, log: ObjectLog) -> list[LoggedGroup]:
    """Return the commits above a record, while nothing is published, which are held in memory.

    Raises:
        CorruptionError: An object is damaged, or gone.
        UnavailableError: The server does not answer, or refuses.
    """
    with walking(log, record.log_begin) as walk:
        return above(record, _groups(log, walk), log.objects.url) or []


def _groups(log: ObjectLog, walk: LogWalk) -> Iterator[LoggedGroup]:
    while (found := walk.step_to_the_end()) is not None:
        if found.is_frame:
            yield from log.groups(found)
